"""Orders of reading; they decide which task a client reads next.

One small class for each order; it knows nothing of connections or credit. The order of coordinated
reads, which follows a schedule, is in `round_order.py`.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from stoker.service.chunk import Chunk
from stoker.wire.frames import Frame, Positions


@dataclass(frozen=True, kw_only=True)
class ReceivedChunk(Chunk):
    """A chunk with its place: frame `number` of the task; `repeated`: it was yielded before.

    `ranges`: the positions of its elements in a deterministic epoch.
    """

    task_id: int
    number: int
    repeated: bool = False
    ranges: Sequence[Positions] = field(default_factory=list)

    @classmethod
    def of(cls, frame: Frame, task_id: int) -> "ReceivedChunk":
        """Return the chunk of a frame of a task."""
        return cls(
            frame.elements,
            frame.nbytes,
            frame.error,
            task_id=task_id,
            number=frame.number,
            ranges=frame.positions,
        )


class Order(ABC):
    """The chunks that have arrived and are not yielded, in the order to yield them."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """True if every chunk that has arrived is yielded."""

    @abstractmethod
    def put(self, chunk: ReceivedChunk) -> int:
        """Add a chunk that has arrived; return the number of its positions that were kept."""

    @abstractmethod
    def take(self) -> ReceivedChunk | None:
        """Remove and return the chunk to yield next; ``None`` if it has not arrived."""

    @abstractmethod
    def clear(self) -> None:
        """Drop all chunks: nobody takes one any more."""

    def needed_first(self, task_ids: Collection[int], coming: Callable[[int], int]) -> int | None:
        """Return which of these tasks gets the next free credit.

        Args:
            task_ids: tasks that have elements and no credit, the longest waiting first; not empty.
            coming: returns the number of elements of a task that have credit and did not arrive.

        Returns:
            One of them; ``None`` keeps the credit for a task that is needed before all of them.
        """
        return next(iter(task_ids))

    def is_over(self, computed: bool, ended: bool) -> bool:
        """Return whether all elements of the iteration are yielded.

        Args:
            computed: as in `Tasks`.
            ended: nothing more is expected of the tasks.
        """
        return computed and ended


class ArrivalOrder(Order):
    """Chunks are yielded as they arrive, from all tasks."""

    def __init__(self) -> None:
        self._chunks: deque[ReceivedChunk] = deque()

    @property
    def empty(self) -> bool:
        return not self._chunks

    def put(self, chunk: ReceivedChunk) -> int:
        self._chunks.append(chunk)
        return chunk.positions

    def take(self) -> ReceivedChunk | None:
        return self._chunks.popleft() if self._chunks else None

    def clear(self) -> None:
        self._chunks.clear()
