"""Messages of one connection, received and sent by the threads of a poller."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from stoker.errors import FailedPreconditionError, InvalidArgumentError, StokerError, to_record
from stoker.wire.frames import Bye, Message
from stoker.wire.transports import Connection
from stoker.wire.transports.poller import Poller

_log = logging.getLogger(__name__)


class Channel:
    """A connection that no thread waits for, used by one thread at a time.

    Messages are received by the thread whose poller reports them. They are sent by the thread that
    calls `flush`, while that does not block: it computed a frame's elements and has them in its
    cache (measured: 24 % more images of 150 KB per second through shared memory than with another
    thread). The poller sends the rest.

    Args:
        connection: owned by this object.
        poller: reports when the connection can be used.
        received: called with each message, by one thread at a time, without a lock held here. An
            exception ends the connection with this error.
        ended: called at most once: with the error that ended the connection, or ``None`` after the
            message ``None`` was sent. Not called after `close`.
    """

    def __init__(
        self,
        connection: Connection,
        poller: Poller,
        received: Callable[[Message], None],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self.connection = connection
        self._poller = poller
        self._received = received
        self._ended = ended
        self._messages: deque[Message | None] = deque()
        self._using = threading.Lock()
        self._state = threading.Lock()
        self._begun = False  # the first message is sent in part; under `_using`
        self._blocked = False  # until the poller reports room
        self._reading = False  # a thread handles what the poller reported, and watches again
        self._finishing = False  # `None` was put
        self._finished = False  # and reached
        self._closed = False

    def start(self) -> None:
        """Begin to receive."""
        self._watch()

    def put(self, message: Message | None) -> None:
        """Append a message; ``None`` closes the connection after the messages already appended.

        Call `flush` afterwards, without a lock that `received` or `ended` acquires.
        """
        self._finishing = self._finishing or message is None
        self._messages.append(message)

    @property
    def is_sending(self) -> bool:
        """True while messages that were put are not sent."""
        return bool(self._messages)

    def flush(self) -> None:
        """Send the messages that can be sent without waiting, unless another thread does."""
        while self._messages and not (self._blocked or self._closed):
            if not self._using.acquire(blocking=False):
                return  # the thread that uses the connection looks again
            failed: BaseException | None = None
            sent = True
            try:
                sent = self._send_ready()
            except BaseException as error:  # noqa: BLE001 - `ended` reports it
                failed = error  # a message may be half sent
            finally:
                self._release()
            if failed is not None or self._finished:
                self._end(failed)
            elif not sent:
                self._await_room()
            if failed is not None and not isinstance(failed, Exception):
                raise failed

    def set_peer_timeout(self, seconds: float) -> None:
        """See `Connection.set_peer_timeout`."""
        with self._using:
            self.connection.set_peer_timeout(seconds)

    def close(self) -> None:
        """Close the connection; messages that are not sent are dropped. Idempotent."""
        with self._state:
            self._closed = True
        self._close_connection()

    def _close_connection(self) -> None:
        if self._using.acquire(blocking=False):
            try:
                self.connection.close()
            finally:
                self._using.release()

    def _release(self) -> None:
        self._using.release()
        if self._closed:  # by a thread that left the rest to this thread
            self._close_connection()

    def _end(self, error: BaseException | None) -> None:
        with self._state:
            first, self._closed = not self._closed, True
        self._close_connection()
        if first:
            self._ended(error)

    # Sending.

    def _send_ready(self) -> bool:
        """Send messages; return False if the rest has to wait."""
        connection = self.connection
        while self._messages:
            message = self._messages[0]
            if message is None:
                self._finished = True
                return True
            try:
                sent = connection.flush() if self._begun else connection.send_now(message)
            except (InvalidArgumentError, FailedPreconditionError) as error:
                # The pipeline has checked that each element can be encoded, but not all in one
                # frame.
                _log.debug("cannot send to %s: %s", connection.peer, error)
                self._messages = deque([Bye(to_record(error)), None])
                continue
            except StokerError as error:
                # What the peer sent before can still be received.
                _log.debug("cannot send to %s: %s", connection.peer, error)
                self._begun = False
                self._finished = self._finishing
                self._messages.clear()
                return True
            self._begun = not sent
            if not sent:
                return False
            self._messages.popleft()
        return True

    def _await_room(self) -> None:
        with self._state:
            self._blocked = True
            if self._reading:
                return
        self._watch()

    # Receiving.

    def _watch(self) -> None:
        try:
            with self._state:
                self._reading = False
                if not self._closed:
                    self.connection.watch(self._poller, self._ready, writable=self._blocked)
        except StokerError as error:
            self._end(error)

    def _ready(self, limit: int) -> None:
        """Handle what the poller reports; receive at most about `limit` messages."""
        with self._state:
            if self._reading or self._closed:
                return
            self._reading, self._blocked = True, False
        try:
            self.flush()
            self._receive(limit)
        except Exception as error:  # noqa: BLE001 - `ended` reports it
            self._end(error)
        except BaseException as error:  # the message may be half received
            self._end(error)
            raise
        else:
            self._watch()

    def _receive(self, limit: int) -> None:
        connection = self.connection
        count = 0
        while not self._closed and (count < limit or connection.has_ahead):
            with self._using:
                message = connection.receive_now()
            if self._closed:
                self._close_connection()
                return
            if self._messages:
                self.flush()  # another thread left the messages to this thread
            if message is None:
                return
            count += 1
            self._received(message)
