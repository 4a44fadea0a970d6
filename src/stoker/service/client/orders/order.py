"""Orders of reading; they decide which task a client reads next.

One small class for each order; it knows nothing of connections or credit. The order of coordinated
reads is in `round_order.py`, `orders.py` chooses.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from stoker.errors import StokerError
from stoker.service.chunk import Chunk
from stoker.service.messages import RoundPosition, RoundReached, RoundsChange, TaskInfo


@dataclass(frozen=True, kw_only=True)
class ReceivedChunk(Chunk):
    """A chunk with its place: frame `number` of the task; `repeated`: it was yielded before."""

    task_id: int
    number: int
    repeated: bool = False


class Order(ABC):
    """The chunks that have arrived and are not yielded, in the order to yield them.

    Attributes:
        in_turns: tasks are read in turns, one element at a time.
    """

    in_turns = False

    @property
    @abstractmethod
    def empty(self) -> bool:
        """True if every chunk that has arrived is yielded."""

    @abstractmethod
    def reads(self, task: TaskInfo) -> bool:
        """Return whether the client reads a task that the dispatcher assigned to it."""

    @abstractmethod
    def put(self, chunk: ReceivedChunk) -> None:
        """Add a chunk that has arrived."""

    @abstractmethod
    def take(self) -> ReceivedChunk | None:
        """Remove and return the chunk to yield next; ``None`` if it has not arrived."""

    @abstractmethod
    def clear(self) -> None:
        """Drop all chunks: nobody takes one any more."""

    @abstractmethod
    def needed_first(self, task_ids: Collection[int], coming: Callable[[int], int]) -> int | None:
        """Return which of these tasks gets the next free credit.

        Args:
            task_ids: tasks that have elements and no credit, the longest waiting first; not empty.
            coming: returns the number of elements of a task that have credit and did not arrive.

        Returns:
            One of them; ``None`` keeps the credit for a task that is needed before all of them.
        """

    # ── what coordinated reads need besides ───────────────────────────────────────────────────────
    @property
    def started(self) -> bool:
        """False while the place of the first element is not known."""
        return True

    def first_frame(self, task_id: int) -> int:
        """Return the first frame of a task to receive."""
        return 0

    def skipped(self, task_id: int, frame: int) -> None:  # noqa: B027 - only in turns
        """Record that the frames of a task before `frame` will not arrive."""

    def task_ended(self, task_id: int) -> None:  # noqa: B027 - only in turns
        """Record that all elements of a task have arrived, unless others give some back."""

    def task_lost(self, task_id: int) -> None:  # noqa: B027 - only in turns
        """Record that nothing more of a task arrives."""

    @property
    def to_leave(self) -> Sequence[tuple[int, int]]:
        """The tasks that the client leaves, and the number of frames of each that it reads."""
        return ()

    def change(  # noqa: B027 - only in turns
        self, changes: Sequence[RoundsChange], hold: int, ended: Sequence[int]
    ) -> None:
        """Apply the message `Rounds`."""

    def take_discarded(self) -> list[ReceivedChunk]:
        """Remove and return the chunks that are not yielded."""
        return []

    def report(self, ready: bool) -> RoundReached | None:
        """Return what the dispatcher must know and was not sent.

        Args:
            ready: the workers of all tasks answer, so that the client can start.
        """
        return None

    @property
    def position(self) -> RoundPosition | None:
        """The place of the next element in a schedule, if there is one."""
        return None

    @property
    def counts(self) -> dict[str, int]:
        """Totals for the statistics."""
        return {}

    @property
    def error(self) -> StokerError | None:
        """An error that ends the iteration, if there is one."""
        return None

    @property
    def awaited(self) -> int | None:
        """The task of the next element, if only one can be."""
        return None

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

    def reads(self, task: TaskInfo) -> bool:
        return True

    def put(self, chunk: ReceivedChunk) -> None:
        self._chunks.append(chunk)

    def take(self) -> ReceivedChunk | None:
        return self._chunks.popleft() if self._chunks else None

    def clear(self) -> None:
        self._chunks.clear()

    def needed_first(self, task_ids: Collection[int], coming: Callable[[int], int]) -> int | None:
        return next(iter(task_ids))
