"""Accepted connections."""

import logging
import threading

from stoker.errors import StokerError, UnavailableError
from stoker.wire.transports import Connection, OnConnection

_log = logging.getLogger(__name__)

_FORGET_AT = 64


class AcceptedConnections:
    """Calls `on_connection` for each accepted connection, and closes them with the listener."""

    def __init__(self, on_connection: OnConnection) -> None:
        self._on_connection = on_connection
        self._lock = threading.Lock()
        self._closed = False
        self._accepted: set[Connection] = set()
        self._forget_at = _FORGET_AT

    def start(self, connection: Connection) -> None:
        """Serve `connection`; close the connection if `on_connection` raises.

        Raises:
            UnavailableError: if the listener was closed; so is the connection.
        """
        with self._lock:
            closed = self._closed
            if not closed:
                self._forget_closed()
                self._accepted.add(connection)
        if closed:
            connection.close()
            raise UnavailableError(f"the listener that {connection.peer} connected to was closed")
        try:
            self._on_connection(connection)
        except (StokerError, OSError) as error:
            # Errors a peer can cause: silence, invalid messages, disconnecting.
            _log.info("the connection from %s ended: %s", connection.peer, error)
            connection.close()
        except Exception:  # noqa: BLE001 - logged; the thread serves the others
            _log.exception("the connection from %s is closed", connection.peer)
            connection.close()

    def _forget_closed(self) -> None:
        if len(self._accepted) >= self._forget_at:
            self._accepted = {each for each in self._accepted if not each.closed}
            self._forget_at = max(_FORGET_AT, 2 * len(self._accepted))

    def close(self) -> None:
        """Close all connections. Idempotent."""
        with self._lock:
            self._closed = True
            accepted, self._accepted = self._accepted, set()
        for connection in accepted:
            connection.close()
