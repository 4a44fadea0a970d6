"""Shared memory between processes of one host, signalled over a Unix socket. Linux only.

A worker process has a pool of segments (`segments`): sealed memfds that each client maps once. What
a frame holds is computed into a block of the pool, or copied there once, and the client gets views
of the very same memory. When the last view is gone (`stoker.wire.buffers`), the block goes back,
as a number in whatever the client sends next. Nobody waits for it: while all blocks are in use,
bodies travel through the socket.

`transport` is where processes meet, `connection` what they say, in `envelope`s; `lending` is the
worker's half and `borrowing` the client's; `forking` keeps children out of it.
"""

from stoker.wire.transports.shm.segments import Segments
from stoker.wire.transports.shm.transport import SHM, ShmTransport

__all__ = ["SHM", "Segments", "ShmTransport"]
