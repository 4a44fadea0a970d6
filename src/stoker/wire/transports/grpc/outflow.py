"""What goes out on a gRPC call: data as far as the peer's windows allow, replies at once."""

import select
import threading
import time
from collections.abc import Callable

from stoker.elements.codec.layout import Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire.transports.grpc import http2
from stoker.wire.transports.stream_socket import StreamSocket

MESSAGE_BYTES = 4 << 20
"""What is sent is cut into gRPC messages of so many bytes: networks may refuse larger ones."""

_MAX_REPLY_BYTES = 64 << 10
_AT_ONCE = 16 << 20  # of data in one system call; replies wait for it


class Outflow:
    """The sending side of one stream. Used by any threads, inside the socket's `using`.

    Args:
        sock: what it writes to.
        read: called by a sender for whom the peer's window is shut; reads what the peer sends, one
            message or until the window opens, or returns False because another thread does.
    """

    def __init__(self, sock: StreamSocket, read: Callable[[], bool]) -> None:
        self.stream = 1
        self._socket = sock
        self._read = read
        # Frames are written whole: who holds this may write.
        self._wire = threading.Lock()
        self._changed = threading.Condition()
        self._replies = bytearray()
        self._ended = ""
        self._news = 0  # counts what a starved sender may have waited for
        self._starved = 0
        self._window = http2.DEFAULT_WINDOW
        self._stream_window = http2.DEFAULT_WINDOW
        self._initial_window = http2.DEFAULT_WINDOW
        self._frame_bytes = http2.DEFAULT_FRAME_BYTES

    def send(self, buffers: list[Buffer]) -> None:
        """Send a part of the stream; waits while the peer does not let more come.

        Raises:
            UnavailableError: `end` was called.
            OSError: the socket broke.
        """
        parts = http2.Cutter(grpc_messages(buffers))
        left = parts.nbytes
        while left:
            allowed, frame_bytes = self._take_window(min(left, _AT_ONCE))
            left -= allowed
            frames: list[Buffer] = []
            while allowed:
                length = min(allowed, frame_bytes)
                frames.append(http2.frame_header(length, http2.DATA, 0, self.stream))
                frames += parts.take(length)
                allowed -= length
            self.write(frames)

    def _take_window(self, wanted: int) -> tuple[int, int]:
        """How much of `wanted` may be sent now, at least a byte, and how long frames may be."""
        while True:
            with self._changed:
                if self._ended:
                    raise UnavailableError(self._ended)
                allowed = min(wanted, self._window, self._stream_window)
                if allowed > 0:
                    self._window -= allowed
                    self._stream_window -= allowed
                    return allowed, self._frame_bytes
                news = self._news
                self._starved += 1
            try:
                if not self._read():
                    with self._changed:
                        while self._news == news:
                            self._changed.wait()
            finally:
                with self._changed:
                    self._starved -= 1

    @property
    def shut(self) -> bool:
        """Whether the peer lets nothing more come, for now."""
        return not self._ended and min(self._window, self._stream_window) <= 0

    def write(self, frames: list[Buffer]) -> None:
        """Write whole frames; waits while the kernel takes no more."""
        with self._wire:
            self._write_with_replies(frames)
        # Replies that came meanwhile: who has them to say does not wait.
        while self._replies and self._wire.acquire(blocking=False):
            try:
                self._write_with_replies([])
            finally:
                self._wire.release()

    def _write_with_replies(self, frames: list[Buffer]) -> None:
        with self._changed:
            replies, self._replies = self._replies, bytearray()
        self._socket.send_all([replies, *frames] if replies else frames)

    # ── said by who receives, which must not wait for the peer to receive ─────────────────────────
    def reply(self, frames: bytes) -> None:
        """Send whole frames now, or as soon as the kernel takes them.

        Raises:
            WireError: the peer asks for more than it reads.
        """
        with self._changed:
            self._replies += frames
            if len(self._replies) > _MAX_REPLY_BYTES:
                raise WireError(f"it asked for {len(self._replies)} bytes and reads none of them")
        self.flush()

    def flush(self) -> bool:
        """Send the replies that wait; whether none does that nobody else is about to send."""
        while self._replies and self._wire.acquire(blocking=False):
            try:
                with self._changed:
                    replies = bytes(self._replies)
                sent = self._socket.send_some(replies)
                with self._changed:
                    del self._replies[:sent]
            finally:
                self._wire.release()
            if sent < len(replies):
                return False
        return True

    def flush_until(self, deadline: float | None) -> None:
        """Send the replies that wait, until there is something to read, or the deadline."""
        while self._replies and not self.flush():
            poll = select.poll()
            poll.register(self._socket.fileno(), select.POLLIN | select.POLLOUT)
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            if [event for _, event in poll.poll(left)] != [select.POLLOUT]:
                return

    # ── what the peer says of it ──────────────────────────────────────────────────────────────────
    def nobody_reads(self) -> None:
        """A starved sender must now read itself what opens its window."""
        if self._starved:
            self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    def grant(self, stream: int, more: int) -> None:
        """The peer takes so many bytes more, on the stream or (0) the connection.

        Raises:
            WireError: that is none, or more than HTTP/2 can count.
        """
        with self._changed:
            if stream == 0:
                self._window += more
            elif stream == self.stream:
                self._stream_window += more
            if not more or max(self._window, self._stream_window) > http2.LARGEST_WINDOW:
                raise WireError(f"an HTTP/2 window that grows by {more} bytes")
        self._wake()

    def set_limits(self, settings: dict[int, int]) -> None:
        """The peer's settings, as far as they change what may be sent."""
        with self._changed:
            initial = settings.get(http2.INITIAL_WINDOW_SIZE, self._initial_window)
            self._stream_window += initial - self._initial_window
            self._initial_window = initial
            self._frame_bytes = settings.get(http2.MAX_FRAME_SIZE, self._frame_bytes)
        self._wake()

    def end(self, why: str) -> None:
        """Nothing more can be sent; who waits to is told `why`."""
        with self._changed:
            self._ended = self._ended or why
        self._wake()

    def say_goodbye(self, frames: bytes) -> None:
        """Send the last frames if that can be done at once."""
        if self._wire.acquire(blocking=False):
            try:
                with self._changed:
                    replies = bytes(self._replies)
                self._socket.send_some(replies + frames)
            finally:
                self._wire.release()


def grpc_messages(buffers: list[Buffer]) -> list[Buffer]:
    """`buffers` with the prefixes that make gRPC messages of them."""
    size = sum(memoryview(buffer).nbytes for buffer in buffers)
    if size <= MESSAGE_BYTES:
        return [http2.MESSAGE_PREFIX.pack(0, size), *buffers]
    parts = http2.Cutter(buffers)
    messages: list[Buffer] = []
    while size:
        length = min(size, MESSAGE_BYTES)
        messages.append(http2.MESSAGE_PREFIX.pack(0, length))
        messages += parts.take(length)
        size -= length
    return messages
