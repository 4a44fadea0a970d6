"""Send queue of one data connection; any thread may drain it while sends do not block."""

import logging
import threading
from collections import deque

from stoker.errors import FailedPreconditionError, InvalidArgumentError, StokerError, to_record
from stoker.wire import frames as f
from stoker.wire.transports import Connection

logger = logging.getLogger("stoker.worker")


class SendQueue:
    """Messages to one client.

    The thread that computed a frame's elements sends it while they are in its cache, if sending
    means to write them to memory that the client maps (measured: 24 % more images of 150 KB per
    second through shared memory than with a sending thread). Messages that have to wait for the
    client are sent by the queue's own thread.

    Args:
        connection: the connection; closed after the last message.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._messages: deque[f.Message | None] = deque()
        self._sending = threading.Lock()
        self._waits = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._send_all, name="stoker-send", daemon=True)
        self._thread.start()

    def put(self, message: f.Message | None) -> None:
        """Append a message; ``None`` ends the queue. Call `flush` afterwards without a lock."""
        self._messages.append(message)

    def flush(self) -> None:
        """Send the messages that can be sent without waiting, unless another thread does."""
        while self._messages and not (self._waits.is_set() or self._over):
            if not self._sending.acquire(blocking=False):
                return  # the thread that sends checks again when done
            try:
                self._send_ready()
            finally:
                self._sending.release()

    def join(self) -> None:
        """Wait until the last message is sent or the connection has failed."""
        self._thread.join()

    def _send_ready(self) -> None:
        while self._messages and not self._over:
            message = self._messages[0]
            if message is not None and self._send(message, wait=False):
                self._messages.popleft()
            else:
                self._waits.set()
                return

    def _send_all(self) -> None:
        """Send the messages that have to wait; runs on the queue's thread."""
        while not self._over:
            self._waits.wait()
            with self._sending:
                while self._messages and not self._over:
                    message = self._messages[0]
                    if message is None:
                        self._over = True
                    else:
                        self._send(message, wait=True)
                        self._messages.popleft()
                self._waits.clear()
            self.flush()  # messages that arrived in between
        self._connection.close()

    def _send(self, message: f.Message, *, wait: bool) -> bool:
        """Send a message; return whether it was sent, which may be False without `wait`."""
        connection = self._connection
        try:
            try:
                return connection.send(message) is None if wait else connection.send_now(message)
            except (InvalidArgumentError, FailedPreconditionError) as error:
                # The pipeline has checked that each element can be encoded, but not all in one
                # frame.
                connection.send(f.Bye(to_record(error)))
                raise
        except StokerError as error:
            logger.debug("cannot send to %s: %s", connection.peer, error)
            self._over = True
            self._waits.set()
            return False
