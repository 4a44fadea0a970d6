"""Set of the epochs of a source whose splits are all read."""


class EpochSet:
    """Set of ints of 0 or more, small while they are added almost in order.

    Example:
        >>> epochs = EpochSet()
        >>> epochs.add(0)
        >>> epochs.add(2)
        >>> [epoch in epochs for epoch in range(4)]
        [True, False, True, False]
    """

    def __init__(self) -> None:
        self._first_missing = 0
        self._later: set[int] = set()

    def add(self, epoch: int) -> None:
        """Add an epoch."""
        self._later.add(epoch)
        while self._first_missing in self._later:
            self._later.remove(self._first_missing)
            self._first_missing += 1

    def __contains__(self, epoch: object) -> bool:
        return isinstance(epoch, int) and (epoch < self._first_missing or epoch in self._later)
