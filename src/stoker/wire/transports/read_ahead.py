"""Receives from a socket what announces how much follows it, and what follows it."""

import socket

from stoker.wire.transports.stream_socket import StreamSocket


class ReadAhead:
    """Reads more than it is asked for, so that one call of the kernel may serve many messages.

    Args:
        stream: methods run inside its `receive_by`.
        size: how much it reads at once.

    Attributes:
        data: what was read begins in it at `start`.
    """

    def __init__(self, stream: StreamSocket, size: int) -> None:
        self.stream = stream
        self.data = bytearray(size)
        self.start = 0
        self._end = 0
        self._size = size

    @property
    def ahead(self) -> memoryview:
        """What was read and nobody is done with, maybe nothing."""
        return memoryview(self.data)[self.start : self._end]

    def need(self, size: int, deadline: float | None) -> None:
        """Have at least `size` bytes in `data`, from `start`.

        Raises:
            TimeoutError: they did not arrive in time; what did is kept.
            UnavailableError: the peer is gone.
            WireError: a subclass was sent what may not come.
        """
        while self._end - self.start < size:
            self._make_room(size)
            self._end += self._receive(memoryview(self.data)[self._end :], deadline)

    def pass_(self, size: int) -> None:
        """Be done with `size` bytes."""
        self.start += size

    def take(self, size: int) -> bytes:
        """A copy of the next `size` bytes, which `need` got; be done with them."""
        taken = bytes(memoryview(self.data)[self.start : self.start + size])
        self.start += size
        return taken

    def into(self, target: memoryview, deadline: float | None) -> int:
        """Receives bytes that follow, at least one, into `target`; returns how many.

        Raises:
            TimeoutError, UnavailableError: as `need`.
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
            # Grows with what arrives, not to what was announced; into new memory, because a
            # traceback may hold a view of the old.
            self.data = self.data + bytes(min(size - have, have))
