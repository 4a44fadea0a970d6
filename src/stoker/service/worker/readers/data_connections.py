"""The data connections of a worker: handshakes, and messages between clients and the logic."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from stoker.errors import InvalidArgumentError, StokerError, UnavailableError, to_record
from stoker.service.process.clock import CLOCK, Clock
from stoker.service.worker.readers.probing import probe_frames
from stoker.wire import frames as f
from stoker.wire.frame_compressor import compressor_for
from stoker.wire.refusal_log import RefusalLog
from stoker.wire.transports import Connection
from stoker.wire.transports.channel import Channel
from stoker.wire.transports.poller import Poller

logger = logging.getLogger("stoker.worker")

HELLO_SECONDS = 60.0
"""A data connection without a hello for this long is closed."""

POLLING_THREADS = 2
"""Threads that receive from any number of clients, and send what would have blocked a pipeline.

The second one serves the others while the first compresses a frame.
"""


@dataclass(eq=False)
class _Client:
    """One connection; `number` is ``None`` until its hello."""

    peer: str
    number: int | None = None
    refused: bool = False


class DataConnections:
    """All data connections of a worker, run by a few threads.

    Args:
        received: called with the number of a connection and a message, first with the hello.
        lost: called with the number of a connection that ended after its hello.
        probed: returns the answer to a probe.
        clock: that of `tick`.
    """

    def __init__(
        self,
        received: Callable[[int, f.Message], None],
        lost: Callable[[int], None],
        probed: Callable[[], f.WorkerProbeReply],
        clock: Clock = CLOCK,
    ) -> None:
        self._clock = clock
        self.poller = Poller("stoker-poll", POLLING_THREADS)
        self._client_message = received
        self._client_lost = lost
        self._probed = probed
        self._lock = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self._greeting: dict[_Client, tuple[Channel, float]] = {}
        self._last_number = 0
        self._to_flush: set[Channel] = set()
        self._refusals = RefusalLog(logger, clock.now)

    def accept(self, connection: Connection) -> None:
        """Serve a connection that a listener accepted."""
        client = _Client(connection.peer)
        channel = Channel(
            connection, self.poller, partial(self._received, client), partial(self._ended, client)
        )
        with self._lock:
            self._greeting[client] = channel, self._clock.now() + HELLO_SECONDS
        channel.start()

    def put(self, number: int, message: f.Message | None) -> None:
        """Send a message, or close the connection after the last one, at the next `flush`."""
        channel = self._channels.get(number)
        if channel is not None:
            channel.put(message)
            self._to_flush.add(channel)

    def take_to_flush(self) -> set[Channel]:
        """Return the channels with new messages, to be flushed without a lock."""
        to_flush, self._to_flush = self._to_flush, set()
        return to_flush

    def tick(self, now: float) -> None:
        """Close connections without a hello, and warn of the refused ones."""
        # Each connection has a descriptor, also that of a port scanner.
        with self._lock:
            late = [client for client, (_, until) in self._greeting.items() if now > until]
        for client in late:
            error = TimeoutError(f"{client.peer} sent no whole message in time")
            self._refuse(client, error, foreign=True)
        self._refusals.warn_if_due()

    def close(self) -> None:
        """Close all connections. The poller must be closed after the listeners."""
        with self._lock:
            channels = [
                *self._channels.values(),
                *(channel for channel, _ in self._greeting.values()),
            ]
        for channel in channels:
            channel.close()

    def _received(self, client: _Client, message: f.Message) -> None:
        if client.number is not None:
            self._client_message(client.number, message)
        elif isinstance(message, f.WorkerProbe):
            self._answer(client, message)
        elif not client.refused:
            self._greet(client, message)

    def _answer(self, client: _Client, probe: f.WorkerProbe) -> None:
        """Answer a probe; its connection is one without a hello, and has as much time."""
        with self._lock:
            channel, _ = self._greeting.get(client, (None, 0.0))
        if channel is not None and channel.is_sending:  # else answers fill the memory
            self._refuse(client, InvalidArgumentError("a probe came before the last was answered"))
        elif channel is not None:
            channel.put(self._probed())
            for frame in probe_frames(probe):
                channel.put(frame)
            channel.flush()

    def _greet(self, client: _Client, hello: f.Message) -> None:
        try:
            if not isinstance(hello, f.Hello):
                raise InvalidArgumentError(f"expected Hello, got {type(hello).__name__}")
            f.negotiate(hello.protocol_min, hello.protocol_max)
        except StokerError as error:
            self._refuse(client, error)
            return
        with self._lock:
            if client not in self._greeting:  # it was too late
                return
            channel, _ = self._greeting.pop(client)
            # Before the number is known to the logic, whose first frame may follow immediately.
            channel.connection.compressor = compressor_for(hello.compression)
            self._last_number += 1
            client.number = self._last_number
            self._channels[client.number] = channel
        self._client_message(client.number, hello)

    def _refuse(self, client: _Client, error: Exception, foreign: bool = False) -> None:
        with self._lock:
            channel, _ = self._greeting.pop(client, (None, 0.0))
            client.refused = True
        if channel is not None:
            self._refusals.add(client.peer, error, foreign=foreign)
            if channel.is_sending:  # the client may never receive the answer before the reason
                channel.close()
                return
            channel.put(f.Bye(to_record(error)))
            channel.put(None)
            channel.flush()

    def _ended(self, client: _Client, error: BaseException | None) -> None:
        with self._lock:
            greeting = self._greeting.pop(client, None)
            if client.number is not None:
                self._channels.pop(client.number, None)
        if greeting is not None and isinstance(error, StokerError):
            self._refusals.add(client.peer, error, foreign=True)
        elif error is None or isinstance(error, UnavailableError):
            logger.debug("client %s disconnected", client.peer)
        elif isinstance(error, StokerError):
            self._refusals.add(client.peer, error)
        else:
            # Only what the client has sent is in doubt, and its connection ends.
            logger.error(
                "connection from %s is closed by an internal error", client.peer, exc_info=error
            )
        if client.number is not None:
            self._client_lost(client.number)
