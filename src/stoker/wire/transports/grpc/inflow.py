"""What comes in on a gRPC call: frames, and in those of DATA the messages' bytes."""

from abc import ABC, abstractmethod

from stoker.errors import WireError
from stoker.wire.transports.grpc import http2
from stoker.wire.transports.read_ahead import ReadAhead
from stoker.wire.transports.stream_socket import StreamSocket

LARGEST_FRAME_BYTES = 4 << 20
"""Of DATA, as this side's settings say. One system call fetches the most of it."""

_BUFFER_BYTES = 64 << 10
_MAX_CONTROL_BYTES = _BUFFER_BYTES - http2.FRAME_HEADER_BYTES


class FrameHandler(ABC):
    """Told of every frame, in order. What it raises ends the reading."""

    @abstractmethod
    def waits(self, deadline: float | None) -> None:
        """More is about to be read, which may not be there yet."""

    @abstractmethod
    def data_comes(self, stream: int, length: int) -> bool:
        """A DATA frame begins; whether it is of the stream that is read."""

    @abstractmethod
    def data_ended(self) -> None:
        """The peer has sent all of the stream, and it was read."""

    @abstractmethod
    def control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Another frame came."""


class Inflow:
    """The receiving side of a connection with one stream. Used by one thread at a time.

    Where a call times out, the next goes on.

    Args:
        sock: what it reads from.
        handler: told of every frame.
    """

    def __init__(self, sock: StreamSocket, handler: FrameHandler) -> None:
        self._bytes = _Bytes(sock, handler)
        self._handler = handler
        self._data_left = 0  # of the DATA frame that is being read
        self._padding_left = 0
        self._message_left = 0  # of the gRPC message
        self._prefix = b""
        self._ends = False

    def read_into(self, target: memoryview, deadline: float | None) -> int:
        """Fill a beginning of `target` with bytes of the stream; how much of it.

        Nothing when a frame came that is not DATA, so that who waited for that one can look.
        """
        while not (self._data_left and self._message_left):
            if self._data_left:
                self._read_prefix(deadline)
            elif self._ends:
                self._handler.data_ended()
            elif not self.read_frame(deadline):
                return 0
        got = self._bytes.into(target[: min(self._data_left, self._message_left)], deadline)
        self._data_left -= got
        self._message_left -= got
        return got

    def _read_prefix(self, deadline: float | None) -> None:
        size = http2.MESSAGE_PREFIX.size
        missing = min(size - len(self._prefix), self._data_left)
        self._prefix += self._take(missing, deadline)
        self._data_left -= missing
        if len(self._prefix) == size:
            compressed, self._message_left = http2.MESSAGE_PREFIX.unpack(self._prefix)
            self._prefix = b""
            if compressed:
                raise WireError("a compressed gRPC message, which was not agreed upon")

    def read_frame(self, deadline: float | None) -> bool:
        """Read the next frame, of a DATA frame only the beginning; whether it is one."""
        if self._padding_left:
            self._skip_padding(deadline)
        self._bytes.need(http2.FRAME_HEADER_BYTES, deadline)
        length, kind, flags, stream = http2.parse_frame_header(self._bytes.ahead)
        if kind == http2.DATA:
            self._begin_data(length, flags, stream, deadline)
            return True
        if length > _MAX_CONTROL_BYTES:
            raise WireError(f"an HTTP/2 frame of kind {kind} of {length} bytes")
        frame = self._take(http2.FRAME_HEADER_BYTES + length, deadline)
        self._handler.control(kind, flags, stream, frame[http2.FRAME_HEADER_BYTES :])
        return False

    def _begin_data(self, length: int, flags: int, stream: int, deadline: float | None) -> None:
        if length > LARGEST_FRAME_BYTES:
            raise WireError(f"an HTTP/2 DATA frame of {length} bytes")
        header = http2.FRAME_HEADER_BYTES + bool(flags & http2.PADDED)
        padding = 0
        if flags & http2.PADDED:
            self._bytes.need(header, deadline)
            padding = self._bytes.ahead[header - 1]
            length -= 1
        if padding > length:
            raise WireError(f"an HTTP/2 DATA frame with {padding} bytes of padding in {length}")
        self._take(header, deadline)
        if self._handler.data_comes(stream, length + header - http2.FRAME_HEADER_BYTES):
            self._data_left, self._padding_left = length - padding, padding
            self._ends = bool(flags & http2.END_STREAM)
        else:
            self._padding_left = length

    def _skip_padding(self, deadline: float | None) -> None:
        while self._padding_left:
            self._padding_left -= len(self._take(min(self._padding_left, 4096), deadline))

    # ── bytes of the connection ───────────────────────────────────────────────────────────────────
    def expect(self, data: bytes, deadline: float | None) -> None:
        """Read `data`, which is short.

        Raises:
            WireError: something else came.
        """
        while True:
            have = bytes(self._bytes.ahead[: len(data)])
            if not data.startswith(have):
                raise WireError(f"the peer does not speak gRPC: expected {data!r}, got {have!r}")
            if have == data:
                break
            self._bytes.need(len(have) + 1, deadline)
        self._bytes.pass_(len(data))

    def _take(self, size: int, deadline: float | None) -> bytes:
        self._bytes.need(size, deadline)
        return self._bytes.take(size)


class _Bytes(ReadAhead):
    """Bytes of the connection; tells `handler` of every wait for more of them."""

    def __init__(self, sock: StreamSocket, handler: FrameHandler) -> None:
        super().__init__(sock, _BUFFER_BYTES)
        self._handler = handler

    def into(self, target: memoryview, deadline: float | None) -> int:
        if len(target) < _BUFFER_BYTES:
            self.need(1, deadline)
        elif not self.ahead:
            self._handler.waits(deadline)
        return super().into(target, deadline)

    def _receive(self, target: memoryview, deadline: float | None) -> int:
        self._handler.waits(deadline)
        return super()._receive(target, deadline)
