"""Heartbeat deadlines of workers and clients."""


class Leases:
    """Deadlines on the dispatcher's clock, in seconds, each renewed by every message.

    After a stall of the dispatcher itself, in which it received nothing, every lease is renewed,
    so that a pause of the dispatcher never costs a worker its tasks.
    """

    def __init__(self, now: float, stall: float) -> None:
        self._lengths: dict[int, float] = {}
        self._deadlines: dict[int, float] = {}
        self._last_tick = now
        self._stall = stall

    def __len__(self) -> int:
        return len(self._lengths)

    def grant(self, holder: int, length: float, now: float) -> None:
        """Start or renew the lease of `holder`; `length` is in seconds."""
        self._lengths[holder] = length
        self._deadlines[holder] = now + length

    def renew(self, holder: int, now: float) -> None:
        """Renew the lease of `holder`; unknown holders are ignored."""
        if holder in self._lengths:
            self._deadlines[holder] = now + self._lengths[holder]

    def age(self, holder: int, now: float) -> float:
        """Return the seconds since the lease of `holder` was granted or renewed."""
        return now - (self._deadlines[holder] - self._lengths[holder])

    def drop(self, holder: int) -> None:
        """End the lease of `holder`."""
        self._lengths.pop(holder, None)
        self._deadlines.pop(holder, None)

    def expired(self, now: float) -> list[int]:
        """Return the holders whose lease has expired; they stay until dropped."""
        if now - self._last_tick > self._stall:
            for holder in self._lengths:
                self.renew(holder, now)
        self._last_tick = now
        return [holder for holder, deadline in self._deadlines.items() if deadline < now]
