"""Receiving from a Unix socket: bytes, and the descriptors sent with them."""

import array
import errno
import socket
from collections import deque

from stoker.errors import WireError
from stoker.wire.transports.receive_buffer import ReceiveBuffer
from stoker.wire.transports.stream_socket import StreamSocket

_BUFFER_BYTES = 64 << 10
_MAX_DESCRIPTORS = 16
_ANCILLARY = socket.CMSG_SPACE(_MAX_DESCRIPTORS * 4)


class SocketReader(ReceiveBuffer):
    """Receive buffer that also queues received descriptors.

    `need` raises WireError when more than 16 descriptors are queued.
    """

    def __init__(self, stream: StreamSocket, *, wait: bool) -> None:
        super().__init__(stream, _BUFFER_BYTES, wait=wait)
        self._descriptors: deque[int] = deque()
        self._lost_descriptors = False

    def descriptor(self) -> int:
        """Return the next descriptor, which the caller must close.

        Raises:
            WireError: if none was sent.
            OSError: if this process has reached its limit of open files.
        """
        if not self._descriptors:
            if self._lost_descriptors:
                raise OSError(errno.EMFILE, "too many files are open; raise `ulimit -n`")
            raise WireError("received a segment without a descriptor")
        return self._descriptors.popleft()

    def close(self) -> None:
        """Close the queued descriptors."""
        while self._descriptors:
            socket.close(self._descriptors.popleft())

    def _receive(self, target: memoryview) -> int:
        got, ancillary, flags = self.stream.receive_ancillary(
            target, _ANCILLARY, socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(data[: len(data) // 4 * 4])
                self._descriptors.extend(found)
        # The kernel drops descriptors beyond the limit of open files, and sets this flag alone.
        self._lost_descriptors |= bool(flags & socket.MSG_CTRUNC)
        # A peer could otherwise use up the descriptors of this process.
        if len(self._descriptors) > _MAX_DESCRIPTORS:
            raise WireError(f"received {len(self._descriptors)} descriptors nobody announced")
        return got
