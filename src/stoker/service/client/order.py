"""Orders of reading; they decide which task a client reads next.

One small class for each order; it knows nothing of connections or credit.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from stoker.service.chunk import Chunk
from stoker.service.messages import JobParameters, TaskInfo


@dataclass(frozen=True, kw_only=True)
class ReceivedChunk(Chunk):
    """A chunk with its place: frame `number` of the task."""

    task_id: int
    number: int


class Order(ABC):
    """The chunks that have arrived and are not yielded, in the order to yield them."""

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
    def needed_first(self, task_ids: Collection[int]) -> int | None:
        """Return which of these tasks gets the next free credit.

        Args:
            task_ids: tasks that have elements and no credit, the longest waiting first; not empty.

        Returns:
            One of them; ``None`` keeps the credit for a task that is needed before all of them.
        """


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

    def needed_first(self, task_ids: Collection[int]) -> int | None:
        return next(iter(task_ids))


def new_order(parameters: JobParameters) -> Order:  # noqa: ARG001 - coordinated reads will use it
    """Return the order in which a client of a job with these parameters reads."""
    return ArrivalOrder()
