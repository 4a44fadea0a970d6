"""Messages in gRPC calls, on grpcio (the extra ``stoker[grpc]``): for networks that need HTTP/2.

A forked child of a process with an open grpcio call may hang or abort (docs/transfer.md). So no
transport is "grpc" unless the user names "grpc", and only then this module is imported.

A connection is one bidirectional call on its own TCP connection. The server accepts it with an
empty gRPC message. Each other gRPC message is a piece of one stoker message: the first piece has
its prefix and header, and no piece has much more than `PIECE_BYTES`, since gRPC limits a message to
4 GiB and networks often to less.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any
from urllib.parse import unquote

import grpc

from stoker.elements.codec.layout import Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire.addresses import format_address, parse_address
from stoker.wire.buffers import BufferPool
from stoker.wire.frames import MAX_HEADER_BYTES, PREFIX, Message, decode, encode, parse_prefix
from stoker.wire.transports import (
    GRPC_PATH,
    PEER_TIMEOUT,
    Connection,
    Listener,
    OnConnection,
    Transport,
)
from stoker.wire.transports.accepted import AcceptedConnections
from stoker.wire.transports.poller import Poller
from stoker.wire.transports.queues import Mailbox, QueueConnection
from stoker.wire.transports.tcp import MAX_BODY_BYTES, MAX_LISTENER_BYTES, POOLED_BYTES

_log = logging.getLogger(__name__)

# grpcio replaced our own HTTP/2, which was faster for large elements but had 1,004 lines to
# maintain. (docs/decisions/033)
PIECE_BYTES = 1 << 20  # of 9.6 MB frames, 1 MiB pieces carried more per second than 4 MiB ones
_QUEUED_BYTES = 1 << 20  # in each direction, before HTTP/2's window stops the sender
_LINGER_SECONDS = 1.0  # in which a closed side's last messages are still sent

_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_pings_without_data", 0),
    (
        "grpc.http2.min_recv_ping_interval_without_data_ms",
        250,
    ),  # below the shortest keepalive_time_ms
    # A TCP connection on which no call begins is closed after a minute.
    ("grpc.server_handshake_timeout_ms", 60_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.so_reuseport", 0),  # otherwise two workers could listen on one port
    ("grpc.use_local_subchannel_pool", 1),  # otherwise connections to a worker share a socket
    ("grpc.enable_http_proxy", 0),  # the other transports ignore `http_proxy` too
]
_NOTHING = memoryview(bytearray())


def _notice_within(seconds: float) -> list[tuple[str, int]]:
    """Return the options by which a connection ends when its peer does not answer a ping.

    gRPC sets TCP_USER_TIMEOUT to the keep-alive timeout, but a ping without an answer ends the
    connection only after the ping timeout (grpcio 1.85: 60 s by default). A ping may be queued
    behind data on a slow network, so most of the time is for the answer.
    """
    milliseconds = int(min(max(seconds, 1.0), 3600.0) * 1000)
    silence = milliseconds * 3 // 10
    answer = milliseconds - silence
    return [
        ("grpc.keepalive_time_ms", silence),
        ("grpc.keepalive_timeout_ms", answer),
        ("grpc.http2.ping_timeout_ms", answer),
    ]


def _receive_at_most(size: int) -> tuple[str, int]:
    return "grpc.max_receive_message_length", size


class GrpcConnection(QueueConnection):
    """Messages both ways in one call: `outgoing` is what the call sends, `start` begins to read.

    Args:
        peer: for error messages.
        max_body_bytes: longer bodies are refused before memory is allocated.
        max_header_bytes: the same for headers.
    """

    def __init__(
        self, peer: str, max_body_bytes: int, max_header_bytes: int = MAX_HEADER_BYTES
    ) -> None:
        super().__init__(peer, Mailbox(_QUEUED_BYTES), Mailbox(_QUEUED_BYTES))
        self._max_body_bytes = max_body_bytes
        self._max_header_bytes = max_header_bytes
        self._unsent: deque[bytes] = deque()
        self._ended = threading.Event()
        self._cancel: Callable[[], Any] | None = None
        self._bodies = BufferPool(POOLED_BYTES)
        self._header: bytes | None = None  # of the message whose body is arriving
        self._body = self._missing = _NOTHING

    def start(
        self,
        incoming: Iterator[bytes],
        cancel: Callable[[], Any],
        release: Callable[[], None] | None = None,
    ) -> None:
        """Read the call on a daemon thread until it ends.

        Args:
            incoming: the peer's pieces.
            cancel: ends the call; pieces that are not sent yet are lost.
            release: called when the call has ended.
        """
        self._cancel = cancel
        thread = threading.Thread(target=self._read, args=(incoming, release), daemon=True)
        thread.name = f"stoker-grpc-{self.peer}"
        thread.start()

    def outgoing(self) -> Iterator[bytes]:
        """Yield the pieces to send until this side is closed or the call has ended."""
        with contextlib.suppress(UnavailableError):
            while True:
                self._outbox.wait(None, room=False)
                yield self._outbox.take()

    def wait_accepted(self, timeout: float) -> None:
        """Wait for the server's empty message; TimeoutError, or UnavailableError."""
        self._inbox.wait(time.monotonic() + timeout, room=False)
        self._inbox.take()

    def _read(self, incoming: Iterator[bytes], release: Callable[[], None] | None) -> None:
        reason = "it closed the connection"
        try:
            for piece in incoming:
                with contextlib.suppress(UnavailableError):  # closed here: wait for the call's end
                    self._inbox.put(piece)
        except grpc.RpcError as error:
            reason = "the call was cancelled"
            if isinstance(error, grpc.Call):  # only a client's has a code
                reason = f"{error.code().name}: {error.details()}"
        finally:
            self._inbox.end(f"{self.peer} disconnected: {reason}", drop=False)
            self._outbox.end(f"{self.peer} disconnected: {reason}", drop=True)
            self._ended.set()
            # gRPC's core closes its descriptors with the last object that refers to the core.
            self._cancel = None
            if release is not None:
                release()

    def close(self) -> None:
        if self._closed:
            return
        super().close()
        # The call ends by itself once the peer has read what was sent, unless the peer never reads.
        thread = threading.Thread(target=self._cancel_late, name="stoker-grpc-close", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is exiting
            self._cancel_now()

    def _cancel_late(self) -> None:
        if not self._ended.wait(_LINGER_SECONDS):
            self._cancel_now()

    def _cancel_now(self) -> None:
        cancel = self._cancel
        if cancel is not None:
            cancel()

    def send_now(self, message: Message) -> bool:
        if self._closed:
            raise self.closed_here()
        pack = None if self.compressor is None else self.compressor.compress
        self._unsent.extend(_cut(encode(message, pack)))
        return self.flush()

    def flush(self) -> bool:
        try:
            while self._unsent:
                if not self._outbox.offer(self._unsent[0]):
                    return False
                self._unsent.popleft()
        except UnavailableError:
            if self._closed:
                raise self.closed_here() from None
            raise
        if self.compressor is not None:
            self.compressor.sent()
        return True

    def receive_now(self) -> Message | None:
        try:
            while self._header is None or self._missing:
                piece = self._inbox.take()
                if piece is None:
                    return None
                if self._header is None:
                    self._begin(memoryview(piece))
                else:
                    self._fill(memoryview(piece))
            return self._decode()
        except WireError as error:
            self.close()
            raise WireError(f"{self.peer} sent what is not a message: {error}") from error

    def _begin(self, piece: memoryview) -> None:
        if len(piece) < PREFIX.size:
            raise WireError(f"a message that begins with {len(piece)} bytes")
        size, body_size = parse_prefix(piece, self._max_body_bytes)
        if size > min(self._max_header_bytes, len(piece) - PREFIX.size):
            raise WireError(
                f"a header of {size} bytes in a piece of {len(piece)}; up to "
                f"{self._max_header_bytes} are allowed"
            )
        if body_size:
            self._body = self._missing = self._bodies.take(body_size)
        self._header = bytes(piece[PREFIX.size : PREFIX.size + size])
        self._fill(piece[PREFIX.size + size :])

    def _fill(self, piece: memoryview) -> None:
        if len(piece) > len(self._missing):
            raise WireError(f"{len(piece) - len(self._missing)} bytes more than the body announced")
        self._missing[: len(piece)] = piece
        self._missing = self._missing[len(piece) :]

    def _decode(self) -> Message:
        header, body = self._header or b"", self._body or None
        self._header, self._body, self._missing = None, _NOTHING, _NOTHING
        limit, allocate = self._max_body_bytes, self._bodies.take
        return decode(header, body, self.types, max_body_bytes=limit, allocate=allocate)


def _cut(buffers: list[Buffer]) -> Iterator[bytes]:
    """Join `buffers` into pieces; the first piece has all of the first buffer."""
    parts: list[Buffer] = [buffers[0]]
    room = max(0, PIECE_BYTES - len(buffers[0]))
    for buffer in buffers[1:]:
        view = memoryview(buffer).cast("B")
        while len(view) > room:
            yield b"".join([*parts, view[:room]])
            view, parts, room = view[room:], [], PIECE_BYTES
        parts.append(view)
        room -= len(view)
    yield b"".join(parts)


class _ThreadPerCall(futures.Executor):
    """Runs each call on a daemon thread, as the other transports serve each connection.

    A `ThreadPoolExecutor` has a bound, and its threads keep the process from exiting.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        future: futures.Future[Any] = futures.Future()

        def run() -> None:
            try:
                fn(*args, **kwargs)
            finally:
                future.set_result(None)

        try:
            threading.Thread(target=run, name="stoker-grpc-call", daemon=True).start()
        except RuntimeError as error:  # raised from here, the error would end the whole server
            _log.warning("a gRPC call is not answered, its client will time out: %s", error)
            future.set_result(None)
        return future


class GrpcListener(Listener):
    """A gRPC server; each call becomes a connection. Arguments and errors: `Transport.listen`."""

    def __init__(
        self, host: str, port: int, on_connection: OnConnection, peer_timeout: float
    ) -> None:
        self._serving = AcceptedConnections(on_connection)
        _, service, method = GRPC_PATH.split("/")
        serve = grpc.stream_stream_rpc_method_handler(self._serve)
        handler = grpc.method_handlers_generic_handler(service, {method: serve})
        options = [
            *_OPTIONS,
            *_notice_within(peer_timeout),
            _receive_at_most(PREFIX.size + 2 * MAX_LISTENER_BYTES),
        ]
        server = grpc.server(_ThreadPerCall(), [handler], options=options)
        try:
            port = server.add_insecure_port(format_address(host or "::", port))
        except RuntimeError as error:
            server.start()  # grpcio 1.85 leaks the descriptors of a server that never ran
            server.stop(None).wait()
            raise UnavailableError(
                f"cannot listen on {format_address(host, port)}: {error}; choose another port, "
                "or 0 for any free one"
            ) from error
        self.address = format_address(host, port)
        self._server: grpc.Server | None = server
        server.start()

    def _serve(self, incoming: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        peer = unquote(context.peer().partition(":")[2])
        connection = GrpcConnection(peer, MAX_LISTENER_BYTES, MAX_LISTENER_BYTES)
        try:
            connection.start(incoming, context.cancel)
            self._serving.start(connection)
        except (UnavailableError, RuntimeError) as error:
            _log.warning("%s refused a connection: %s", self.address, error)
            return
        yield b""
        yield from connection.outgoing()

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            stopped = server.stop(_LINGER_SECONDS)
            self._serving.close()
            stopped.wait()


class GrpcTransport(Transport):
    """gRPC without TLS; addresses are TCP's."""

    name = "grpc"

    def listen(
        self,
        host: str,
        port: int,
        on_connection: OnConnection,
        peer_timeout: float = PEER_TIMEOUT,
        poller: Poller | None = None,
    ) -> Listener:
        return GrpcListener(host, port, on_connection, peer_timeout)

    def connect(self, address: str, timeout: float) -> Connection:
        parse_address(address)
        options = [*_OPTIONS, *_notice_within(PEER_TIMEOUT), _receive_at_most(-1)]
        channel = grpc.insecure_channel(address, options)
        connection = GrpcConnection(address, MAX_BODY_BYTES)
        call = channel.stream_stream(GRPC_PATH)(connection.outgoing())
        try:
            connection.start(call, call.cancel, channel.close)
            connection.wait_accepted(timeout)
        except (TimeoutError, UnavailableError, RuntimeError) as error:
            connection.close()
            raise UnavailableError(f"cannot connect to {address} by gRPC: {error}") from error
        return connection


GRPC = GrpcTransport()
