"""Connections that have opened no session: what a stranger can hold of a server is bounded."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from stoker.service.control.receiving import HELLO_SECONDS

MAX_PENDING = 4096
"""Most connections without a session, of about 50 KB each. Ten thousand workers that come back at
one moment have fewer: a connection and its first message arrive together."""

SWEEPS = 6
"""Sweeps in `HELLO_SECONDS`; each closes the connections that have been idle for that time."""


# Only so many connections may be without a session: a stranger who opens thousands exhausts neither
# memory nor descriptors. (docs/decisions/066)
class PendingConnections:
    """Close connections without a session, if there are too many or they do nothing.

    Use on the loop only.

    Args:
        limit: the largest number; for one more, the one that was used longest ago is closed.

    Attributes:
        used_at: connection without a session → the time of its last use, in this order.
    """

    def __init__(self, limit: int = MAX_PENDING) -> None:
        self.used_at: OrderedDict[Hashable, float] = OrderedDict()
        self._limit = limit
        self._closers: dict[Hashable, Callable[[str], None]] = {}
        self._sessions: Counter[Hashable] = Counter()
        self._calls: Counter[Hashable] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, connection: Hashable, close: Callable[[str], None]) -> None:
        """Add a connection that a peer has opened; `close` closes it for a reason."""
        self._closers[connection] = close
        self._add(connection)
        if self._timer is None:
            self._sweep_later()

    def closed(self, connection: Hashable) -> None:
        """Remove a connection."""
        self._closers.pop(connection, None)
        self.used_at.pop(connection, None)

    @contextmanager
    def session(self, connection: Hashable) -> Iterator[None]:
        """Exempt a connection while it has a session."""
        self._sessions[connection] += 1
        self.used_at.pop(connection, None)
        try:
            yield
        finally:
            if _leave(self._sessions, connection) and connection in self._closers:
                self._add(connection)

    @contextmanager
    def call(self, connection: Hashable) -> Iterator[None]:
        """Do not count a connection as idle during a call."""
        self._calls[connection] += 1
        try:
            yield
        finally:
            _leave(self._calls, connection)
            if connection in self.used_at:
                self._use(connection)

    def stop(self) -> None:
        """End the sweeps."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _add(self, connection: Hashable) -> None:
        self._use(connection)
        if len(self.used_at) > self._limit:
            first = next(iter(self.used_at))
            self._drop(first, f"{self._limit} later connections have no session either")

    def _use(self, connection: Hashable) -> None:
        self.used_at[connection] = asyncio.get_running_loop().time()
        self.used_at.move_to_end(connection)

    def _drop(self, connection: Hashable, reason: str) -> None:
        close = self._closers[connection]
        self.closed(connection)
        close(reason)

    def _sweep_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HELLO_SECONDS / SWEEPS, self._sweep)

    def _sweep(self) -> None:
        longest_ago = asyncio.get_running_loop().time() - HELLO_SECONDS
        for connection, used_at in list(self.used_at.items()):
            if used_at > longest_ago:
                break
            if not self._calls[connection]:
                self._drop(connection, f"it had no session or call for {HELLO_SECONDS:g} s")
        self._sweep_later()


def _leave(users: Counter[Hashable], connection: Hashable) -> bool:
    """End one use of a connection; return whether it was the last."""
    users[connection] -= 1
    if users[connection]:
        return False
    del users[connection]
    return True
