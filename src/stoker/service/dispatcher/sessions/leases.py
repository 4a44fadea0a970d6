"""Heartbeat deadlines of workers and clients."""


class Leases:
    """Deadlines on the dispatcher's clock, in seconds, each renewed by every message.

    After a stall of the dispatcher itself, in which it received nothing, every lease is renewed,
    so that a pause of the dispatcher never costs a worker its tasks. The same holds while `paused`.

    Attributes:
        paused: no lease expires until any lease is renewed, which then renews all leases.
    """

    def __init__(self, now: float, stall: float) -> None:
        self._lengths: dict[int, float] = {}
        self._deadlines: dict[int, float] = {}
        self._last_tick = now
        self._stall = stall
        self._last_renewal = now
        self.paused = False

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def longest(self) -> float:
        """The length of the longest lease, in seconds; 0 if there is none."""
        return max(self._lengths.values(), default=0.0)

    def grant(self, holder: int, length: float, now: float) -> None:
        """Start or renew the lease of `holder`; `length` is in seconds."""
        self._lengths[holder] = length
        self.renew(holder, now)

    def renew(self, holder: int, now: float) -> None:
        """Renew the lease of `holder`; unknown holders are ignored."""
        if holder not in self._lengths:
            return
        # The first message after a pause shows that the network works; other holders send theirs
        # later.
        for each in self._lengths if self.paused else (holder,):
            self._deadlines[each] = now + self._lengths[each]
        self._last_renewal, self.paused = now, False

    def idle_seconds(self, now: float) -> float:
        """Return the seconds since any lease was granted or renewed."""
        return now - self._last_renewal

    def age(self, holder: int, now: float) -> float:
        """Return the seconds since the lease of `holder` was granted or renewed."""
        return now - (self._deadlines[holder] - self._lengths[holder])

    def remaining(self, holder: int, now: float) -> float:
        """Return the seconds until the lease of `holder` ends, unless renewed."""
        return self._deadlines[holder] - now

    def drop(self, holder: int) -> None:
        """End the lease of `holder`."""
        self._lengths.pop(holder, None)
        self._deadlines.pop(holder, None)

    # A stall of the dispatcher expires no lease: heartbeats wait behind the stall.
    # (docs/decisions/007)
    def note_stall(self, now: float) -> None:
        """Renew all leases after a stall; called before a message that may have waited."""
        if now - self._last_tick > self._stall:
            self._last_tick = now
            for holder in self._lengths:
                self._deadlines[holder] = now + self._lengths[holder]

    def expired(self, now: float) -> list[int]:
        """Return the holders whose lease has expired, which stay until dropped."""
        self.note_stall(now)
        self._last_tick = now
        if self.paused:
            return []
        return [holder for holder, deadline in self._deadlines.items() if deadline < now]
