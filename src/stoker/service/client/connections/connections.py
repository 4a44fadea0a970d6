"""The data connections of one client: dialing, and messages between workers and the logic."""

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from stoker.elements.codec.elements import TypeResolver
from stoker.service import messages as m
from stoker.service.client.connections.route import Route
from stoker.service.process.clock import CLOCK, Clock
from stoker.wire import frames as f
from stoker.wire.transports.channel import Channel
from stoker.wire.transports.poller import Poller

CONNECT_SECONDS = 5.0

DIALING_THREADS = 16
"""Most threads that connect at a time; connecting to a host that does not answer takes 5 s."""


# Two TCP connections to a worker carry 1.2 times as much on idle cores, for a frame order to
# restore. (docs/decisions/025)
class WorkerConnections:
    """Connections to any number of workers, run by one thread besides those in `poller.poll`.

    Args:
        route: selects transports.
        types: rebuilds namedtuples and dataclasses.
        opened: called with the number of a connection, and the name of its transport, when it is
            open, before its first message.
        received: called with the number of a connection and a message.
        ended: called with the number of a connection that could not be opened or has ended, and
            with the error; not after `disconnect`.
        clock: times `wait_disconnected`.
    """

    def __init__(
        self,
        route: Route,
        types: TypeResolver,
        opened: Callable[[int, str], None],
        received: Callable[[int, f.Message], None],
        ended: Callable[[int, BaseException | None], None],
        clock: Clock = CLOCK,
    ) -> None:
        self._clock = clock
        self.poller = Poller("stoker-read")
        self._route = route
        self._types = types
        self._opened, self._received, self._ended = opened, received, ended
        self._changed = threading.Condition()
        self._channels: dict[int, Channel | None] = {}  # None: it is dialed
        self._to_dial: deque[tuple[int, m.TaskInfo]] = deque()
        self._dialers: set[threading.Thread] = set()
        self._to_flush: deque[Channel] = deque()

    @property
    def shared_bytes(self) -> int:
        """Size of the workers' memory that views of received elements refer to."""
        with self._changed:
            channels = [channel for channel in self._channels.values() if channel is not None]
        return sum(channel.connection.shared_bytes for channel in channels)

    def connect(self, number: int, task: m.TaskInfo) -> None:
        """Connect to the worker of `task`, on another thread."""
        with self._changed:
            self._channels[number] = None
            self._to_dial.append((number, task))
            if len(self._dialers) < DIALING_THREADS:
                dialer = threading.Thread(target=self._dial, name="stoker-dial", daemon=True)
                dialer.start()  # it cannot end before this lock is released
                self._dialers.add(dialer)

    def put(self, number: int, message: f.Message) -> None:
        """Send a message at the next `flush`, if the connection is open."""
        channel = self._channels.get(number)
        if channel is not None:
            channel.put(message)
            self._to_flush.append(channel)

    def flush(self) -> None:
        """Send what was put; call it without a lock that the callbacks acquire."""
        while self._to_flush:
            try:
                channel = self._to_flush.popleft()
            except IndexError:  # another thread was faster
                return
            channel.flush()

    def set_peer_timeout(self, number: int, seconds: float) -> None:
        """See `Connection.set_peer_timeout`."""
        channel = self._channels.get(number)
        if channel is not None:
            channel.set_peer_timeout(seconds)

    def disconnect(self, number: int) -> None:
        """Close a connection, or dial it no more."""
        channel = self._remove(number)
        if channel is not None:
            channel.close()

    def wait_disconnected(self, timeout: float) -> bool:
        """Wait until all connections have ended."""
        with self._changed:
            return self._clock.wait_for(self._changed, lambda: not self._channels, timeout)

    def close(self) -> None:
        """Close all connections and end the threads."""
        with self._changed:
            self._to_dial.clear()
            numbers = list(self._channels)
            dialers = list(self._dialers)
        for number in numbers:
            self.disconnect(number)
        # A dialing thread cannot be interrupted; it ends by the timeout of its attempt.
        deadline = time.monotonic() + CONNECT_SECONDS
        for dialer in dialers:
            dialer.join(max(0.0, deadline - time.monotonic()))
        self.poller.close()

    def _remove(self, number: int) -> Channel | None:
        with self._changed:
            channel = self._channels.pop(number, None)
            self._changed.notify_all()
            return channel

    def _dial(self) -> None:
        """Dial until nothing is to be dialed; runs on a dialing thread."""
        while True:
            with self._changed:
                if not self._to_dial:
                    self._dialers.discard(threading.current_thread())
                    return
                number, task = self._to_dial.popleft()
                if number not in self._channels:  # disconnected in the meantime
                    continue
            try:
                self._open(number, task)
            except Exception as error:  # noqa: BLE001 - `ended` reports it
                self._channel_ended(number, error)

    def _open(self, number: int, task: m.TaskInfo) -> None:
        connection = self._route.connect(task, CONNECT_SECONDS)
        connection.types = self._types
        channel = Channel(
            connection,
            self.poller,
            partial(self._received, number),
            partial(self._channel_ended, number),
        )
        with self._changed:
            wanted = number in self._channels
            if wanted:
                self._channels[number] = channel
        if not wanted:
            channel.close()
            return
        self._opened(number, connection.protocol)
        channel.start()

    def _channel_ended(self, number: int, error: BaseException | None) -> None:
        # Also called for a connection that this end has closed.
        with self._changed:
            known = number in self._channels
        if known:
            self._ended(number, error)
            self.disconnect(number)
