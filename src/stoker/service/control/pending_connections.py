"""Connections that have opened no session: what a stranger can hold of a server is bounded."""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from stoker.service.control.receiving import HELLO_SECONDS

MAX_PENDING = 4096
"""Most connections without a session, of about 50 KB each. Ten thousand workers that come back at
one moment have fewer: a connection and its first message arrive together."""


# Only so many connections may be without a session: a stranger who opens thousands exhausts neither
# memory nor descriptors. (docs/decisions/066)
class PendingConnections:
    """Close connections without a session, if there are too many or they do nothing.

    Use on the loop only.

    Args:
        limit: the largest number; for one more, the one that was used longest ago is closed.
    """

    def __init__(self, limit: int = MAX_PENDING) -> None:
        self._limit = limit
        self._closers: dict[Hashable, Callable[[str], None]] = {}
        self._sessions: Counter[Hashable] = Counter()
        self._calls: Counter[Hashable] = Counter()
        # Connections without a session, in the order of their last use.
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}

    def __contains__(self, connection: Hashable) -> bool:
        """Return whether a connection has no session."""
        return connection in self._timers

    def opened(self, connection: Hashable, close: Callable[[str], None]) -> None:
        """Add a connection that a peer has opened; `close` closes it for a reason."""
        self._closers[connection] = close
        self._add(connection)

    def closed(self, connection: Hashable) -> None:
        """Remove a connection."""
        self._closers.pop(connection, None)
        self._forget(connection)

    @contextmanager
    def session(self, connection: Hashable) -> Iterator[None]:
        """Exempt a connection while it has a session."""
        self._sessions[connection] += 1
        self._forget(connection)
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
            if connection in self:
                self._use(connection)

    def _add(self, connection: Hashable) -> None:
        self._use(connection)
        if len(self._timers) > self._limit:
            first = next(iter(self._timers))
            self._drop(first, f"{self._limit} later connections have no session either")

    def _use(self, connection: Hashable) -> None:
        self._forget(connection)
        self._timers[connection] = asyncio.get_running_loop().call_later(
            HELLO_SECONDS, self._idle, connection
        )

    def _forget(self, connection: Hashable) -> None:
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()

    def _idle(self, connection: Hashable) -> None:
        # After a call the timer starts again.
        if not self._calls[connection]:
            self._drop(connection, f"it had no session or call for {HELLO_SECONDS:g} s")

    def _drop(self, connection: Hashable, reason: str) -> None:
        close = self._closers[connection]
        self.closed(connection)
        close(reason)


def _leave(users: Counter[Hashable], connection: Hashable) -> bool:
    """End one use of a connection; return whether it was the last."""
    users[connection] -= 1
    if users[connection]:
        return False
    del users[connection]
    return True
