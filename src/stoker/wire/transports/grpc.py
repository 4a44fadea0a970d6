"""Messages in gRPC calls, on grpcio (the extra ``stoker[grpc]``): for networks that need HTTP/2.

A forked child of a process with an open grpcio call may hang or abort (docs/transfer.md). So no
transport is "grpc" unless the user names "grpc", and only then this module is imported.

A connection is one bidirectional call on its own TCP connection. The server accepts it with an
empty gRPC message. The other gRPC messages are pieces of the bytes that TCP would carry, of at most
`PIECE_BYTES`, since gRPC limits a message to 4 GiB and networks often to less.
"""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any
from urllib.parse import unquote

import grpc

from stoker.errors import UnavailableError
from stoker.wire.addresses import format_address, parse_address
from stoker.wire.frames import MAX_HEADER_BYTES, PREFIX
from stoker.wire.transports import (
    GRPC_PATH,
    PEER_TIMEOUT,
    Connection,
    Listener,
    ListenOptions,
    Transport,
    forking,
)
from stoker.wire.transports.tcp import MAX_BODY_BYTES, MAX_LISTENER_BYTES, TcpConnection

_log = logging.getLogger(__name__)

# grpcio replaced our own HTTP/2, which was faster for large elements but had 1,004 lines to
# maintain. (docs/decisions/033)
PIECE_BYTES = 1 << 20  # of 9.6 MB frames, 1 MiB pieces carried more per second than 4 MiB ones
_CLIENT_PIECE_BYTES = MAX_LISTENER_BYTES  # a listener refuses pieces of twice this size
# In each direction, before HTTP/2's window stops the sender. With Linux's default of 208 KiB, half
# of the 9.6 MB frames arrived per second; with this size, as many as through queues.
_BUFFERED_BYTES = 1 << 20
_LINGER_SECONDS = 1.0  # in which a closed side's last messages are still sent

_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_pings_without_data", 0),
    # Below the shortest keepalive_time_ms: a server ends connections that ping more often.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 250),
    # A TCP connection on which no call begins is closed after a minute.
    ("grpc.server_handshake_timeout_ms", 60_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.so_reuseport", 0),  # otherwise two workers could listen on one port
    ("grpc.use_local_subchannel_pool", 1),  # otherwise connections to a worker share a socket
    ("grpc.enable_http_proxy", 0),  # the other transports ignore `http_proxy` too
]


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


class GrpcConnection(TcpConnection):
    """Connection over a local socket; one gRPC call carries the bytes of the socket's other end.

    Args:
        peer: for error messages.
        max_body_bytes, max_header_bytes, wait: as for `TcpConnection`.
    """

    def __init__(
        self,
        peer: str,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_header_bytes: int = MAX_HEADER_BYTES,
        *,
        wait: bool = True,
    ) -> None:
        try:
            near, self._far = socket.socketpair()
        except OSError as error:
            raise UnavailableError(f"no socket for the connection to {peer}: {error}") from error
        for each in (near, self._far):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFERED_BYTES)
        super().__init__(near, peer, max_body_bytes, max_header_bytes, wait=wait)
        forking.close_in_child(self._far)
        self._far_lock = threading.Lock()
        self._accepted = threading.Event()
        self._ended = threading.Event()
        self._refused = False
        self._cancel: Callable[[], object] = lambda: None

    def start(
        self,
        incoming: Iterator[bytes],
        cancel: Callable[[], object],
        release: Callable[[], None] = lambda: None,
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
        try:
            thread.start()
        except RuntimeError:
            self._far.close()
            raise

    def outgoing(self, max_bytes: int) -> Iterator[bytes]:
        """Yield the pieces to send until this side is closed or the call has ended."""
        while piece := self._take(max_bytes):
            yield piece

    def _take(self, max_bytes: int) -> bytes:
        # The lock keeps `_read` from closing the descriptor, whose number another file could get.
        with self._far_lock, contextlib.suppress(OSError):
            return self._far.recv(max_bytes)
        return b""

    def wait_accepted(self, timeout: float) -> None:
        """Wait for the server's empty message; TimeoutError, or UnavailableError."""
        if not self._accepted.wait(timeout):
            raise TimeoutError("no whole message in time")
        if self._refused:
            raise self._stream.disconnected("")

    def _read(self, incoming: Iterator[bytes], release: Callable[[], None]) -> None:
        reason = "it closed the connection"
        try:
            for piece in incoming:
                self._accepted.set()
                with contextlib.suppress(OSError):  # closed here: wait for the call's end
                    self._far.sendall(piece)
        except grpc.RpcError as error:
            reason = "the call was cancelled"
            if isinstance(error, grpc.Call):  # only a client's has a code
                reason = f"{error.code().name}: {error.details()}"
        finally:
            self._stream.end_reason = reason
            with contextlib.suppress(OSError):  # closed here
                self._far.shutdown(socket.SHUT_RDWR)
            with self._far_lock:
                self._far.close()
            self._ended.set()
            self._refused = not self._accepted.is_set()
            self._accepted.set()
            # gRPC's core closes its descriptors with the last object that refers to the core.
            self._cancel = lambda: None
            release()

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        # The call ends by itself once the peer has read what was sent, unless the peer never reads.
        thread = threading.Thread(target=self._cancel_late, name="stoker-grpc-close", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is exiting
            self._cancel()

    def _cancel_late(self) -> None:
        if not self._ended.wait(_LINGER_SECONDS):
            self._cancel()


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

    def __init__(self, host: str, port: int, listen_options: ListenOptions) -> None:
        _, service, method = GRPC_PATH.split("/")
        serve = grpc.stream_stream_rpc_method_handler(self._serve)
        handler = grpc.method_handlers_generic_handler(service, {method: serve})
        options = [
            *_OPTIONS,
            *_notice_within(listen_options.peer_timeout),
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
        super().__init__(format_address(host, port), listen_options)
        self._server: grpc.Server | None = server
        server.start()

    def _serve(self, incoming: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        peer = unquote(context.peer().partition(":")[2])
        try:
            connection = GrpcConnection(peer, MAX_LISTENER_BYTES, MAX_LISTENER_BYTES, wait=False)
            connection.start(incoming, context.cancel)
            self.serve(connection)
        except (UnavailableError, RuntimeError) as error:
            _log.warning("%s refused a connection: %s", self.address, error)
            return
        yield b""
        yield from connection.outgoing(PIECE_BYTES)

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            stopped = server.stop(_LINGER_SECONDS)
            super().close()
            stopped.wait()


class GrpcTransport(Transport):
    """gRPC without TLS; addresses are TCP's."""

    name = "grpc"

    def _listen(self, host: str, port: int, options: ListenOptions) -> Listener:
        return GrpcListener(host, port, options)

    def connect(self, address: str, timeout: float) -> Connection:
        parse_address(address)
        options = [*_OPTIONS, *_notice_within(PEER_TIMEOUT), _receive_at_most(-1)]
        connection = GrpcConnection(address)
        channel = grpc.insecure_channel(address, options)
        call = channel.stream_stream(GRPC_PATH)(connection.outgoing(_CLIENT_PIECE_BYTES))
        try:
            connection.start(call, call.cancel, channel.close)
            connection.wait_accepted(timeout)
        except (TimeoutError, UnavailableError, RuntimeError) as error:
            connection.close()
            raise UnavailableError(f"cannot connect to {address} by gRPC: {error}") from error
        return connection


GRPC = GrpcTransport()
