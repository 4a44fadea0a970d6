"""Buffers of computed elements; they decide which client of a task gets which element.

One small class for each `BufferPolicy`; `buffers.py` chooses. A buffer knows nothing of connections
or credit.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from stoker.service.chunk import Chunk
from stoker.service.worker.chunk_queue import ChunkQueue

MAX_ELEMENTS = 131_072
"""Most elements that a task computes ahead, however small they are: 16 full frames."""


class Buffer(ABC):
    """Elements that a task has computed and no client has been sent.

    Attributes:
        max_frame_elements: most elements of a frame; ``None``: as many as others allow.
        keeps_unconsumed: what a client was sent before it was lost goes to its successor.
    """

    max_frame_elements: int | None = None
    keeps_unconsumed = False

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
    def join(
        self, client_id: int, trainer: str, consumer_index: int | None, first_frame: int
    ) -> int:
        """Add a client; called before it takes for the first time.

        Args:
            client_id: the client.
            trainer: the id of its trainer for the cross-trainer cache; "" if it has none.
            consumer_index: its index in a coordinated read, or ``None``.
            first_frame: the first frame that the client asks for.

        Returns:
            The number of the client's first frame.

        Raises:
            InvalidArgumentError: if the client cannot read from this buffer.
        """

    def skip(self, client_id: int, frame: int) -> int | None:
        """Drop what the client would take before `frame`.

        Returns:
            The number of its next frame; ``None``: no client can skip.
        """
        return None

    def consumed(self, client_id: int, frame: int) -> None:  # noqa: B027 - most need not know
        """Record that a client has consumed all frames before `frame`."""

    def release(  # noqa: B027 - most need not know
        self, client_id: int, consumer_index: int | None
    ) -> None:
        """Record that a client will not come."""

    def finish(self, *, cut: bool) -> None:  # noqa: B027 - most have nothing to do
        """Record that nothing more is put.

        Args:
            cut: the worker stops, so that this is not the end of the data.
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

    def join(
        self, client_id: int, trainer: str, consumer_index: int | None, first_frame: int
    ) -> int:
        """Return 0: all clients are equal."""
        return 0

    def waiting(self, client_id: int) -> int:
        return self._queue.positions

    def take(self, client_id: int, max_elements: int, max_bytes: int) -> Chunk:
        return self._queue.take(max_elements, max_bytes)

    def give_back(self, client_id: int, chunks: Sequence[Chunk]) -> None:
        self._queue.put_back(chunks)
