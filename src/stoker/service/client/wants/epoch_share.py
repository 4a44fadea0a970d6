"""The positions of a deterministic epoch that one consumer reads."""

from dataclasses import dataclass

from stoker.dataset.tree.splits import ENDLESS
from stoker.wire.frames import Positions


@dataclass(frozen=True, kw_only=True)
class EpochShare:
    """The positions of one consumer: its element `k` is at `base + index + k * count`.

    Attributes:
        index: the consumer, in [0, count).
        count: the number of consumers.
        base: the first position that these consumers read.
        together: the number of consumers that end at the same step: elements that are left over
            from the last `together` elements are not read.
        total: the positions of the epoch; ``None`` if the dispatcher must tell the client.

    Example:
        >>> share = EpochShare(index=1, count=3, base=10)
        >>> share.position(2), share.length(16), share.own((11, 2, 3))
        (17, 2, (0, 2))
    """

    index: int = 0
    count: int = 1
    base: int = 0
    together: int = 1
    total: int | None = None

    def position(self, element: int) -> int:
        """Return the position of an element of this consumer."""
        return self.base + self.index + element * self.count

    def length(self, total: int) -> int:
        """Return the number of elements of this consumer in an epoch of `total` positions."""
        if total >= ENDLESS:
            return ENDLESS
        left = max(0, total - self.base)
        left -= left % self.together
        return max(0, -((self.index - left) // self.count))

    def positions(self, start: int, stop: int) -> Positions:
        """Return the positions of the elements from `start` to `stop`."""
        return self.position(start), stop - start, self.count

    def own(self, positions: Positions) -> tuple[int, int] | None:
        """Return the elements at these positions, as [start, stop); ``None`` if not of this share.

        Args:
            positions: the step of a single position has no meaning.
        """
        first, number, step = positions
        start, rest = divmod(first - self.base - self.index, self.count)
        if rest or start < 0 or (number > 1 and step != self.count):
            return None
        return start, start + number
