"""Set of the epochs of a source whose splits are all read."""

from collections.abc import Iterable


class EpochSet:
    """Set of ints of 0 or more, small while they are added almost in order.

    Args:
        first_missing: all epochs before it are in the set.
        later: epochs after `first_missing` that are in the set.

    Example:
        >>> epochs = EpochSet()
        >>> epochs.add(0)
        >>> epochs.add(2)
        >>> [epoch in epochs for epoch in range(4)]
        [True, False, True, False]
    """

    def __init__(self, first_missing: int = 0, later: Iterable[int] = ()) -> None:
        self.first_missing = first_missing
        self.later = set(later)

    def add(self, epoch: int) -> None:
        """Add an epoch."""
        self.later.add(epoch)
        while self.first_missing in self.later:
            self.later.remove(self.first_missing)
            self.first_missing += 1

    def __contains__(self, epoch: object) -> bool:
        return isinstance(epoch, int) and (epoch < self.first_missing or epoch in self.later)
