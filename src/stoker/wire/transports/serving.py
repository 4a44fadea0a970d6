"""Accepted connections and the threads that serve them."""

import logging
import threading

from stoker.errors import StokerError, UnavailableError
from stoker.wire.transports import Connection, OnConnection

_log = logging.getLogger(__name__)

_JOIN_SECONDS = 5.0


class Serving:
    """Calls `on_connection` for each accepted connection, on a dedicated daemon thread."""

    def __init__(self, on_connection: OnConnection) -> None:
        self._on_connection = on_connection
        self._lock = threading.Lock()
        self._closed = False
        self._served: dict[Connection, threading.Thread] = {}

    def start(self, connection: Connection) -> None:
        """Serve `connection`.

        Raises:
            UnavailableError: if the listener was closed, or no thread can be started; the
                connection is closed.
        """
        thread = threading.Thread(
            target=self._serve,
            args=(connection,),
            name=f"stoker-serve-{connection.peer}",
            daemon=True,
        )
        with self._lock:
            closed = self._closed
            if not closed:
                self._forget_ended()
                self._served[connection] = thread
                try:
                    thread.start()
                except RuntimeError as error:
                    del self._served[connection]
                    connection.close()
                    raise UnavailableError(
                        f"cannot start a thread for {connection.peer}: {error}"
                    ) from error
        if closed:
            connection.close()
            raise UnavailableError(f"the listener that {connection.peer} connected to was closed")

    def _forget_ended(self) -> None:
        self._served = {c: t for c, t in self._served.items() if t.is_alive() or not c.closed}

    def _serve(self, connection: Connection) -> None:
        try:
            self._on_connection(connection)
        except (StokerError, OSError) as error:
            # Errors a peer can cause: silence, invalid messages, disconnecting.
            _log.info("the connection from %s ended: %s", connection.peer, error)
            connection.close()
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close all connections and wait for their threads. Idempotent."""
        with self._lock:
            self._closed = True
            served, self._served = self._served, {}
        for connection in served:
            connection.close()
        for thread in served.values():
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECONDS)
