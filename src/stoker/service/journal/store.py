"""Interface of the places that keep a journal."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

# Compaction starts when the units behind the last snapshot exceed this size and the size of the
# snapshot. (docs/decisions/015)
COMPACTION_BYTES = 16 << 20
"""A snapshot is due when the units since the last one have this size, or that snapshot's."""


@dataclass(frozen=True)
class JournalHistory:
    """Content of a journal, each part read as it is iterated, once.

    Attributes:
        snapshot: the parts of the last snapshot, as they were given.
        units: the units since then, in order.
    """

    snapshot: Iterable[bytes]
    units: Iterable[bytes]


Rewrite = Callable[[JournalHistory], Iterator[bytes]]
"""Returns the parts of a snapshot that replaces a history."""


class Store(ABC):
    """Keeps the blocks of one journal; one thread writes while another may compact.

    Every method may block on I/O. They raise StokerError if the store failed; only `abandon` and
    `close` do not.

    Attributes:
        position: position of the last unit that is durable.
    """

    position: int

    @abstractmethod
    def read(self) -> JournalHistory:
        """Return the history; consumed before the first `write`."""

    @abstractmethod
    def write(self, units: list[bytes]) -> None:
        """Make units durable, all or none, behind those at `position`."""

    @abstractmethod
    def check(self) -> None:
        """Raise if this store can no longer write; called about every 10 s without writes."""

    @abstractmethod
    def compaction_due(self) -> bool:
        """Return whether the history is long enough to be replaced by a snapshot."""

    @abstractmethod
    def compact(self, rewrite: Rewrite) -> None:
        """Replace the history up to now by the snapshot that `rewrite` returns.

        An exception of `rewrite` leaves the history as it is.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything; idempotent."""

    @abstractmethod
    def abandon(self) -> None:
        """Give up the copy of a forked child, without effect on the files of its parent."""
