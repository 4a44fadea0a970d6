"""Set of the epochs of a source whose splits are all read."""

from bisect import insort

import msgspec


class EpochSet(msgspec.Struct, array_like=True, eq=False):
    """Set of ints of 0 or more, small while they are added almost in order.

    Attributes:
        first_missing: all epochs before it are in the set.
        later: epochs after `first_missing` that are in the set, in order.

    Example:
        >>> epochs = EpochSet()
        >>> epochs.add(0)
        >>> epochs.add(2)
        >>> [epoch in epochs for epoch in range(4)]
        [True, False, True, False]
    """

    first_missing: int = 0
    later: list[int] = []

    def add(self, epoch: int) -> None:
        """Add an epoch that is not in the set."""
        insort(self.later, epoch)
        while self.later and self.later[0] == self.first_missing:
            del self.later[0]
            self.first_missing += 1

    def __contains__(self, epoch: object) -> bool:
        return isinstance(epoch, int) and (epoch < self.first_missing or epoch in self.later)
