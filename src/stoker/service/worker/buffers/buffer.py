"""Buffers of computed elements; they decide which client of a task gets which element.

One small class for each way of sharing a task (`buffer_policies.py`). A buffer knows nothing of
connections, credit or frames.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.chunk_queue import ChunkQueue
from stoker.service.worker.tasks.reader import Reader
from stoker.service.worker.tasks.reader_state import ReaderState

MAX_ELEMENTS = 131_072
"""Most elements that a task computes ahead, however small they are: 16 full frames."""


def has_room(queue: ChunkQueue, max_bytes: int) -> bool:
    """Return whether a queue of elements computed ahead has room, as `Buffer.has_room`."""
    # One chunk is always computed ahead, even if it is larger than the buffer.
    if not queue.positions:
        return True
    return queue.nbytes < max_bytes and queue.positions < MAX_ELEMENTS


class Buffer(ABC):
    """Elements that a task has computed and clients can be sent.

    Attributes:
        keeps_sent: clients that come later get elements that others have consumed.
        recomputed: another worker computes again what a client was not sent, so that a worker that
            drains sends no more.
        in_runs: each client gets its element of a run, so all of them leave at the same run.
        max_frame_elements: most elements of a frame; ``None``: as many as others allow.
    """

    keeps_sent = False
    recomputed = False
    in_runs = False
    max_frame_elements: int | None = None

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """About how many bytes the buffered elements take."""

    @property
    @abstractmethod
    def undelivered(self) -> int:
        """The number of buffered positions that wait for clients."""

    @property
    def abandoned(self) -> bool:
        """True if all consumers of a coordinated read have left."""
        return False

    @abstractmethod
    def has_room(self, max_bytes: int) -> bool:
        """Return whether the pipeline may compute more.

        Args:
            max_bytes: about the most bytes to compute ahead. With 0 there is room for one chunk.
        """

    @abstractmethod
    def put(self, chunk: Chunk) -> None:
        """Add what the pipeline computed next."""

    def new_reader(self, client_id: int, max_bytes: int, consumer_index: int | None) -> Reader:
        """Return the state of a new client, which then joins.

        Args:
            client_id: the client.
            max_bytes: about the most bytes to send and keep.
            consumer_index: its index in a coordinated read, or ``None``.

        Raises:
            UnavailableError: if no client can read from this buffer any more.
        """
        return ReaderState(client_id, max_bytes, consumer_index)

    def join(
        self, client_id: int, trainer: str, consumer_index: int | None, first_frame: int = 0
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
        return 0

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
        """Take back the chunks that a client was sent and its user did not consume; it leaves."""

    @abstractmethod
    def lose(self, client_id: int, chunks: Sequence[Chunk]) -> int:
        """Remove a client that was lost, and may have consumed some of `chunks`.

        Returns:
            The number of positions that are lost with it.
        """

    def finish(self, *, cut: bool) -> None:  # noqa: B027 - clients read the rest
        """Handle the end of the pipeline; `cut`: before the end of its data."""

    def counts(self, client_id: int) -> dict[str, int]:
        """Return what the client's `Counts` contain besides the totals of the task."""
        return {}


class FirstCome(Buffer):
    """Each element goes to the client that takes first."""

    def __init__(self) -> None:
        self._queue = ChunkQueue()

    @property
    def nbytes(self) -> int:
        return self._queue.nbytes

    @property
    def undelivered(self) -> int:
        return self._queue.positions

    def has_room(self, max_bytes: int) -> bool:
        return has_room(self._queue, max_bytes)

    def put(self, chunk: Chunk) -> None:
        self._queue.put(chunk)

    def waiting(self, client_id: int) -> int:
        return self._queue.positions

    def take(self, client_id: int, max_elements: int, max_bytes: int) -> Chunk:
        return self._queue.take(max_elements, max_bytes)

    def give_back(self, client_id: int, chunks: Sequence[Chunk]) -> None:
        self._queue.put_back(chunks)

    def lose(self, client_id: int, chunks: Sequence[Chunk]) -> int:
        return sum(chunk.positions for chunk in chunks)
