"""The time for which the trainer waits, as a client reports it to the dispatcher."""

from stoker.dataset.streams.measure.bottleneck import Pass


class TrainerWait:
    """The seconds for which the trainer has waited, summed over periods.

    The thread that reads the service may be another one, such as that of a ``prefetch``. The times
    of the trainer are estimated where its reads are fast, so that their total may fall.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._by_trainer = 0.0
        self._by_reader = 0.0

    def until(self, by_reader: float, read: Pass | None, *, blocked: bool) -> float:
        """Return the total, which never falls, with that of the period since the last call.

        Args:
            by_reader: the seconds for which the thread that reads the service has waited.
            read: the times of the trainer; ``None`` if they are not known.
            blocked: the reading thread has waited for long, so that the trainer waits, although
                that read may be one that is not measured.
        """
        waited = by_reader - self._by_reader
        self._by_reader = by_reader
        if read is not None:
            waited = max(read.waited - self._by_trainer, waited if blocked else 0.0)
            self._by_trainer = read.waited
        self._seconds += max(0.0, waited)
        return self._seconds
