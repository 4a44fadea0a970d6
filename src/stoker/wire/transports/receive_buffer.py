"""Buffered receiving of length-prefixed data from a socket."""

import socket

from stoker.wire.transports.stream_socket import StreamSocket


class ReceiveBuffer:
    """Receives more than requested, so that one system call may serve many messages.

    Args:
        stream: the socket; callers run methods in its context.
        size: maximum bytes per system call.
        wait: wait a little for the rest of a body (see `StreamSocket.receive_into`).

    Attributes:
        data: the buffer; received, unconsumed bytes begin at `start`.
        drained: the last call did not fill the buffer: nothing is left until the next wait.
    """

    def __init__(self, stream: StreamSocket, size: int, *, wait: bool) -> None:
        self.stream = stream
        self.data = bytearray(size)
        self.start = 0
        self._end = 0
        self._size = size
        self._wait = wait
        self._waited = False
        self._is_fast = True  # the last body arrived whole before a wait ended
        self.drained = False

    @property
    def ahead(self) -> int:
        """Number of received bytes that are not consumed."""
        return self._end - self.start

    def need(self, size: int) -> bool:
        """Return whether `data` has at least `size` bytes from `start`; receive what has arrived.

        Raises:
            UnavailableError: if the peer disconnected.
            WireError: if a subclass received invalid ancillary data.
        """
        while self._end - self.start < size:
            if self.drained:
                self.drained = False
                return False
            self._make_room(size)
            room = len(self.data) - self._end
            got = self._receive(memoryview(self.data)[self._end :])
            if not got:
                return False
            self._end += got
            self.drained = got < room
        return True

    def consume(self, size: int) -> None:
        """Drop the next `size` bytes."""
        self.start += size

    def take(self, size: int) -> bytearray:
        """Consume and return the next `size` bytes, which were received."""
        start = self.start
        self.start += size
        return self.data[start : start + size]

    def into(self, target: memoryview) -> memoryview:
        """Consume and receive bytes of a body into `target`; return the part that is missing.

        Raises:
            UnavailableError: see `need`.
        """
        have = min(self._end - self.start, target.nbytes)
        if have:
            target[:have] = memoryview(self.data)[self.start : self.start + have]
            self.start += have
            target = target[have:]
        if target:
            target = target[self._receive_body(target) :]
        if target:
            self.stream.expect(target.nbytes)
        else:
            self._waited = False
            self.stream.expect(1)
        return target

    def _receive_body(self, target: memoryview) -> int:
        """Receive what has arrived of a body; wait once for the rest if the peer is fast."""
        self.drained = False
        if self._waited or not self._wait:
            return self.stream.receive_into(target)
        self._waited = True
        flags = socket.MSG_WAITALL if self._is_fast else socket.MSG_DONTWAIT
        got = self.stream.receive_into(target, flags)
        self._is_fast = got == target.nbytes
        return got

    def _receive(self, target: memoryview) -> int:
        return self.stream.receive_into(target)

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
