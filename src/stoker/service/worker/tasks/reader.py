"""One client that reads a task, however the task is shared."""

from abc import ABC, abstractmethod

from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.chunk_queue import ChunkQueue
from stoker.wire.frames import Credit, Frame, Want


class Reader(ABC):
    """State of one client that reads a task.

    Args:
        client_id: the client.
        consumer_index: its index in a coordinated read, or ``None``.

    Attributes:
        connection: the shell's number of the open connection; ``None`` while it is broken.
        attempt: the client's number of its newest connection.
        ended: `TaskEnd` was sent on this connection after the last frame.
        metered: the client grants credit only for elements announced by `Ready`.
        announced: `Ready` was sent since the client last granted credit.
        first_number: the number of its first frame; others before it are never sent.
        next_number: the number of the next frame.
        kept_positions: the number of positions sent and not known to be consumed.
        kept_bytes: about how many bytes they take.
        reported_counts: the task's totals as last sent on this connection.
        reports: the client knows `Report`.
        reported: the evidence of the task last sent on this connection.
        chunks: the number of chunks that the task has computed since the client came.
        backlogged: how many of them came while earlier elements waited for this client.
        backlog: chunks of an earlier connection that did not arrive; sent first.
    """

    def __init__(self, client_id: int, consumer_index: int | None = None) -> None:
        self.client_id = client_id
        self.consumer_index = consumer_index
        self.connection: int | None = None
        self.attempt = -1
        self.ended = False
        self.metered = False
        self.announced = False
        self.first_number = 0
        self.next_number = 0
        self.kept_positions = self.kept_bytes = 0
        self.reported_counts: dict[str, int] = {}
        self.reports = False
        self.reported = b""
        self.chunks = self.backlogged = 0
        self.backlog = ChunkQueue()

    @property
    @abstractmethod
    def room(self) -> tuple[int, int]:
        """Elements and bytes that may be sent now; nothing is sent unless both are > 0."""

    @property
    @abstractmethod
    def frame_room(self) -> tuple[int, int]:
        """Most elements and bytes of the next frame."""

    def begin_at(self, frame: int) -> None:
        """Send frames from `frame` on; nothing was sent."""
        self.first_number = self.next_number = frame

    @abstractmethod
    def can_resume(self, next_frame: int) -> bool:
        """Return whether everything from `next_frame` on is still kept."""

    def connect(self, connection: int, attempt: int, next_frame: int) -> None:
        """Continue on a new connection; the client has not received `next_frame`."""
        self.connection, self.attempt, self.next_number = connection, attempt, next_frame
        self.ended = self.announced = False
        self.reported_counts = {}
        self.reported = b""

    def disconnect(self) -> None:
        """Handle the end of its connection."""
        self.connection = None

    @abstractmethod
    def credit(self, credit: Credit) -> None:
        """Apply a `Credit`.

        Raises:
            InvalidArgumentError: if clients of the task say `Want`.
        """

    @abstractmethod
    def want(self, want: Want) -> None:
        """Apply a `Want`.

        Raises:
            InvalidArgumentError: if clients of the task give `Credit`, or the message is not valid.
        """

    @abstractmethod
    def send(self, chunk: Chunk) -> Frame:
        """Return the next frame."""

    def return_credit(self) -> int:
        """Give up the unused credit; return how much it was."""
        return 0

    def give_back(self, number: int, consumed: int) -> list[Chunk]:
        """Return all chunks after the first `consumed` positions of frame `number`."""
        return []
