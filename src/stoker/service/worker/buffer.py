"""Buffers of computed elements; they decide which client of a task gets which element.

One small class for each `BufferPolicy`. A buffer knows nothing of connections, credit or frames.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from stoker.service.chunk import Chunk
from stoker.service.messages import BufferPolicy
from stoker.service.worker.chunk_queue import ChunkQueue

MAX_ELEMENTS = 131_072
"""Most elements that a task computes ahead, however small they are: 16 full frames."""


class Buffer(ABC):
    """Elements that a task has computed and no client has been sent."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """About how many bytes the buffered elements take."""

    @property
    @abstractmethod
    def positions(self) -> int:
        """The number of buffered positions."""

    @abstractmethod
    def has_room(self, max_bytes: int) -> bool:
        """Return whether the pipeline may compute more, with `max_bytes` as the limit."""

    @abstractmethod
    def put(self, chunk: Chunk) -> None:
        """Add what the pipeline computed next."""

    @abstractmethod
    def join(self, client_id: int, trainer: str, consumer_index: int | None) -> None:
        """Add a client; called before it takes for the first time.

        Args:
            client_id: the client.
            trainer: the id of its trainer for the cross-trainer cache; "" if it has none.
            consumer_index: its index in a coordinated read, or ``None``.
        """

    @abstractmethod
    def waiting(self, client_id: int) -> int:
        """Return the number of positions that the client can take now."""

    @abstractmethod
    def take(self, client_id: int, max_elements: int, max_bytes: int) -> Chunk:
        """Remove and return what the client gets next: at least one element, or one error.

        Something must be `waiting` for the client.
        """

    @abstractmethod
    def give_back(self, client_id: int, chunks: Sequence[Chunk]) -> None:
        """Take back the chunks that a client was sent and its user did not consume."""


class FirstCome(Buffer):
    """Each element goes to the client that takes first."""

    def __init__(self) -> None:
        self._queue = ChunkQueue()

    @property
    def nbytes(self) -> int:
        return self._queue.nbytes

    @property
    def positions(self) -> int:
        return self._queue.positions

    def has_room(self, max_bytes: int) -> bool:
        return self._queue.nbytes < max_bytes and self._queue.positions < MAX_ELEMENTS

    def put(self, chunk: Chunk) -> None:
        self._queue.put(chunk)

    def join(self, client_id: int, trainer: str, consumer_index: int | None) -> None:
        """Do nothing: all clients are equal."""

    def waiting(self, client_id: int) -> int:
        return self._queue.positions

    def take(self, client_id: int, max_elements: int, max_bytes: int) -> Chunk:
        return self._queue.take(max_elements, max_bytes)

    def give_back(self, client_id: int, chunks: Sequence[Chunk]) -> None:
        self._queue.put_back(chunks)


_BUFFERS: dict[BufferPolicy, type[Buffer]] = {BufferPolicy.FIRST_COME: FirstCome}


def new_buffer(policy: BufferPolicy) -> Buffer:
    """Return an empty buffer that follows `policy`."""
    return _BUFFERS[policy]()
