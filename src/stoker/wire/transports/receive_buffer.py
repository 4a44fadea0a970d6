"""Buffered receiving of length-prefixed data from a socket."""

import socket

from stoker.wire.transports.stream_socket import StreamSocket


class ReceiveBuffer:
    """Receives more than requested, so that one system call may serve many messages.

    Args:
        stream: the socket; callers run methods inside its `receive_with`.
        size: maximum bytes per system call.

    Attributes:
        data: the buffer; received, unconsumed bytes begin at `start`.
    """

    def __init__(self, stream: StreamSocket, size: int) -> None:
        self.stream = stream
        self.data = bytearray(size)
        self.start = 0
        self._end = 0
        self._size = size

    @property
    def ahead(self) -> memoryview:
        """Received bytes that are not consumed; may be empty."""
        return memoryview(self.data)[self.start : self._end]

    def need(self, size: int, deadline: float | None) -> None:
        """Have at least `size` bytes in `data`, from `start`.

        Raises:
            TimeoutError: if they did not arrive in time; the received ones are kept.
            UnavailableError: if the peer disconnected.
            WireError: if a subclass received invalid ancillary data.
        """
        while self._end - self.start < size:
            self._make_room(size)
            self._end += self._receive(memoryview(self.data)[self._end :], deadline)

    def consume(self, size: int) -> None:
        """Drop the next `size` bytes."""
        self.start += size

    def take(self, size: int) -> bytes:
        """Consume and return the next `size` bytes, which `need` received."""
        copy = bytes(memoryview(self.data)[self.start : self.start + size])
        self.start += size
        return copy

    def into(self, target: memoryview, deadline: float | None) -> int:
        """Consume at least one byte into `target`; return the number of bytes.

        Raises:
            TimeoutError, UnavailableError: see `need`.
        """
        have = min(self._end - self.start, target.nbytes)
        if have:
            target[:have] = memoryview(self.data)[self.start : self.start + have]
            self.start += have
            return have
        return self.stream.receive_into(target, deadline, socket.MSG_WAITALL)

    def _receive(self, target: memoryview, deadline: float | None) -> int:
        return self.stream.receive_into(target, deadline)

    def _make_room(self, size: int) -> None:
        have = self._end - self.start
        if not have:
            self.start = self._end = 0
            if len(self.data) > self._size:
                self.data = bytearray(self._size)
        elif self.start and len(self.data) - self.start < size:
            self.data[:have] = self.data[self.start : self._end]
            self.start, self._end = 0, have
        elif self._end == len(self.data):
            # Grow with the received bytes, not to the announced size, which is untrusted; use new
            # memory, because a traceback may reference a view of the old.
            self.data = self.data + bytes(min(size - have, have))
