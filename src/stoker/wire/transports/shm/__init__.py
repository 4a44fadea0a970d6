"""Shared memory between processes of one host, signalled over a Unix socket. Linux only.

A worker process has a pool of segments (`segments`): sealed memfds that each client maps once. The
elements of a frame are computed in a block of the pool, or copied there once, and the client gets
views of the same memory. When the last view is freed (`stoker.wire.buffers`), the client returns
the block: the client's next message carries the number of the loan. The worker never waits for
returns: while all blocks are in use, bodies travel through the socket.

`transport` listens and connects, `connection` exchanges messages in `envelope`s; `lending` is the
worker's half and `borrowing` the client's; `forking` isolates forked children.
"""

from stoker.wire.transports.shm.segments import Segments
from stoker.wire.transports.shm.transport import SHM, ShmTransport

__all__ = ["SHM", "Segments", "ShmTransport"]
