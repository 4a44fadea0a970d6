"""One gRPC call with streams both ways, on a connection of its own, as a socket of bytes."""

import contextlib
import socket
from collections.abc import Callable, Iterator

from stoker.elements.codec.layout import Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire.transports.grpc import http2
from stoker.wire.transports.grpc.inflow import LARGEST_FRAME_BYTES, FrameHandler, Inflow
from stoker.wire.transports.grpc.outflow import Outflow
from stoker.wire.transports.stream_socket import StreamSocket

PATH = "/stoker.Worker/Read"
CONTENT_TYPE = "application/grpc+stoker"

WINDOW = 64 << 20
"""What the peer may send ahead. It costs nothing here: data is read when it is asked for."""

_MAX_BLOCK_BYTES = 64 << 10
_UNIMPLEMENTED = "12"


class Call(FrameHandler):
    """The bytes of a call, each way a stream; `open` or `accept` comes first.

    Args:
        sock: connected; becomes the call's.
        peer: for error messages.
        read: called by a sender that the peer lets send no more, as `Outflow` says.
    """

    def __init__(self, sock: socket.socket, peer: str, read: Callable[[], bool]) -> None:
        self._socket = StreamSocket(sock, peer)
        self._outflow = Outflow(self._socket, read)
        self._inflow = Inflow(self._socket, self)
        self._codec = http2.HeaderCodec()
        self._is_server = False
        self._has_settings = False
        self._headers: http2.Headers | None = None  # the peer's, once they have come
        self._block: tuple[int, int, bytes] | None = None  # stream, flags and headers so far
        self._unacknowledged = 0
        self._over = ""

    @property
    def closed(self) -> bool:
        """Whether this side was closed."""
        return self._socket.closed

    @property
    def shut(self) -> bool:
        """Whether the peer lets nothing more come, for now."""
        return self._outflow.shut

    def open(self, authority: str, deadline: float) -> None:
        """Begin the call, as a client; returns when the server has accepted it.

        Raises:
            UnavailableError: it does not.
            TimeoutError: it has not answered.
            WireError: it does not speak gRPC.
        """
        request = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", PATH),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", CONTENT_TYPE),
            ("user-agent", "grpc-python-stoker"),
        ]
        settings = http2.settings({**_SETTINGS, http2.ENABLE_PUSH: 0})
        opening = self._codec.encode(self._outflow.stream, request)
        with self._until_over():
            self._outflow.write([http2.PREFACE + settings + _WINDOW_UPDATE + opening])
            answer = self._first_headers(deadline)
        status, kind = answer.get(":status"), answer.get("content-type", "")
        if status != "200" or not kind.startswith("application/grpc"):
            raise UnavailableError(f"it answered with HTTP status {status} and {kind or 'nothing'}")

    def accept(self, deadline: float) -> None:
        """Wait for the client's call and accept it, as a server.

        Raises:
            UnavailableError: the client went.
            TimeoutError: it has not called.
            WireError: it does not speak gRPC, or does not call this service.
        """
        self._is_server = True
        settings = http2.settings({**_SETTINGS, http2.MAX_CONCURRENT_STREAMS: 1})
        answer = [(":status", "200"), ("content-type", CONTENT_TYPE)]
        with self._until_over():
            self._outflow.reply(settings + _WINDOW_UPDATE)
            self._inflow.expect(http2.PREFACE, deadline)
            call = self._first_headers(deadline)
            stream = self._outflow.stream
            kind, path = call.get("content-type", ""), call.get(":path")
            if path == PATH and kind.startswith("application/grpc"):
                self._outflow.reply(self._codec.encode(stream, answer))
                return
            refusal = [*answer, ("grpc-status", _UNIMPLEMENTED)]
            self._outflow.reply(self._codec.encode(stream, refusal, http2.END_STREAM))
        raise WireError(f"it called {path!r} with content of type {kind!r}, not {PATH}")

    def _first_headers(self, deadline: float) -> http2.Headers:
        while self._headers is None:
            self._inflow.read_frame(deadline)
        return self._headers

    # ── bytes ─────────────────────────────────────────────────────────────────────────────────────
    def using(self) -> contextlib.AbstractContextManager[None]:
        """The socket stays valid in this context. Raises UnavailableError once closed."""
        return self._socket.using()

    def send(self, buffers: list[Buffer]) -> None:
        """Send all of `buffers`, one message.

        Raises:
            UnavailableError: the peer is gone, or this side was closed.
        """
        self._socket.send_by(self._outflow.send, buffers)

    def read_into(self, target: memoryview, deadline: float | None) -> int:
        """Fill a beginning of `target`; how much: nothing where only the peer's window opened.

        By one thread at a time, inside `using`.

        Raises:
            TimeoutError: nothing came until `deadline`.
            UnavailableError: the peer has ended the call, or this side has; senders get it too.
            WireError: the peer does not keep to the rules of gRPC.
        """
        if self._over:
            raise UnavailableError(self._over)
        try:
            return self._inflow.read_into(target, deadline)
        except TimeoutError:
            raise
        except OSError as error:  # an UnavailableError is one
            gone = error if isinstance(error, UnavailableError) else self._socket.gone(str(error))
            self._over = str(gone)
            self._outflow.end(self._over)
            raise gone from error

    def nobody_reads(self) -> None:
        """A sender that the peer lets send no more must now read itself."""
        self._outflow.nobody_reads()

    def close(self) -> None:
        """End the call and wake who uses it. Idempotent, from any thread."""
        with contextlib.suppress(UnavailableError, OSError), self._socket.using():
            if self._headers is not None:
                self._outflow.say_goodbye(self._goodbye())
        self._socket.close()
        self._outflow.end(str(self._socket.gone("")))

    def _goodbye(self) -> bytes:
        stream = self._outflow.stream
        if self._is_server:
            return self._codec.encode(stream, [("grpc-status", "0")], http2.END_STREAM)
        return http2.frame(http2.DATA, http2.END_STREAM, stream)

    @contextlib.contextmanager
    def _until_over(self) -> Iterator[None]:
        with self._socket.using():
            try:
                yield
            except (UnavailableError, TimeoutError):
                raise
            except OSError as error:
                raise self._socket.gone(str(error)) from error

    # ── what the peer's frames say ────────────────────────────────────────────────────────────────
    def waits(self, deadline: float | None) -> None:
        self._outflow.flush_until(deadline)

    def data_comes(self, stream: int, length: int) -> bool:
        self._check_order(http2.DATA, stream)
        if self._headers is None:
            raise WireError("HTTP/2 DATA before the headers")
        self._unacknowledged += length
        if self._unacknowledged > WINDOW // 4:
            more, self._unacknowledged = self._unacknowledged, 0
            updates = http2.window_update(0, more)
            self._outflow.reply(updates + http2.window_update(self._outflow.stream, more))
        return stream == self._outflow.stream

    def data_ended(self) -> None:
        raise self._socket.gone("it closed the connection")

    def control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self._check_order(kind, stream)
        if kind == http2.SETTINGS:
            self._has_settings = True
            if not flags & http2.ACK:
                self._outflow.set_limits(http2.parse_settings(payload))
                self._outflow.reply(http2.frame(http2.SETTINGS, http2.ACK, 0))
        elif kind == http2.WINDOW_UPDATE:
            self._outflow.grant(stream, http2.parse_u32(payload))
        elif kind == http2.PING and not flags & http2.ACK:
            self._outflow.reply(http2.frame(http2.PING, http2.ACK, 0, payload[:8]))
        elif kind == http2.RST_STREAM and stream == self._outflow.stream:
            raise self._socket.gone(f"it reset the stream, code {http2.parse_u32(payload)}")
        elif kind == http2.GOAWAY and http2.parse_u32(payload) < self._outflow.stream:
            raise self._socket.gone("it takes no more calls")
        elif kind in {http2.HEADERS, http2.CONTINUATION}:
            self._add_to_block(kind, flags, stream, payload)
        elif kind == http2.PUSH_PROMISE:
            raise WireError("HTTP/2 server push, which was not agreed upon")

    def _check_order(self, kind: int, stream: int) -> None:
        if not self._has_settings and kind != http2.SETTINGS:
            raise WireError(f"an HTTP/2 connection that begins with a frame of kind {kind}")
        if (self._block is not None) != (kind == http2.CONTINUATION):
            raise WireError(f"an HTTP/2 frame of kind {kind} where it may not be")
        if self._block is not None and self._block[0] != stream:
            raise WireError(f"HTTP/2 headers of stream {self._block[0]} go on in stream {stream}")

    def _add_to_block(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block is None:
            self._block = stream, flags, http2.header_fragment(payload, flags)
        else:
            self._block = stream, self._block[1], self._block[2] + payload
        if len(self._block[2]) > _MAX_BLOCK_BYTES:
            raise WireError(f"HTTP/2 headers of more than {_MAX_BLOCK_BYTES} bytes")
        if flags & http2.END_HEADERS:
            first_flags, block = self._block[1:]
            self._block = None
            self._headers_came(stream, first_flags, self._codec.decode(block))

    def _headers_came(self, stream: int, flags: int, headers: http2.Headers) -> None:
        if self._headers is None and self._is_server:
            if not stream % 2:
                raise WireError(f"an HTTP/2 stream {stream} of a client's")
            self._outflow.stream = stream
        elif stream != self._outflow.stream:
            self._outflow.reply(http2.reset_stream(stream, http2.REFUSED_STREAM))
            return
        if not flags & http2.END_STREAM:
            self._headers = self._headers or headers
            return
        status = headers.get("grpc-status", "0")
        if status != "0":
            text = headers.get("grpc-message", "")
            raise self._socket.gone(f"it ended the call with gRPC status {status} {text}")
        self.data_ended()


_SETTINGS = {http2.INITIAL_WINDOW_SIZE: WINDOW, http2.MAX_FRAME_SIZE: LARGEST_FRAME_BYTES}
_WINDOW_UPDATE = http2.window_update(0, WINDOW - http2.DEFAULT_WINDOW)
