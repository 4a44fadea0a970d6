"""The time for which the reader of a client waits for chunks."""


class ReaderWait:
    """Sums the waits of one reader, one of which may be open.

    Args:
        now: when the client was created; all times are on this clock, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._created = now
        self._total = 0.0
        self._since: float | None = None

    def age(self, now: float) -> float:
        """Return the seconds since the client was created."""
        return now - self._created

    def begin(self, now: float) -> None:
        """Note that the reader waits, unless it does already."""
        if self._since is None:
            self._since = now

    def end(self, now: float) -> float:
        """Note that the reader waits no more; return the seconds for which it has waited."""
        waited = self.seconds(now)
        self._total += waited
        self._since = None
        return waited

    def seconds(self, now: float) -> float:
        """Return the seconds of the open wait."""
        return 0.0 if self._since is None else max(0.0, now - self._since)

    def until(self, now: float) -> float:
        """Return the seconds of all waits."""
        return self._total + self.seconds(now)
