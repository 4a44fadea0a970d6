"""One client's reading of one task: numbered frames, credit, and what is kept until consumed."""

from collections import deque
from collections.abc import Collection

from stoker.service.chunk import Chunk
from stoker.service.worker.chunk_queue import ChunkQueue
from stoker.wire.frames import Credit, Frame

NO_CREDIT = Credit(0, 0, 0)

FRAMES_UNDER_WAY = 4
"""A window is cut into so many frames: one is in use, one is here, two are on their way."""


class ReaderState:
    """Frames sent to one client, each kept until the client's user has taken all of it.

    Args:
        client_id: who reads.
        max_bytes: to send and keep at most, about, whatever the client would take.

    Attributes:
        connection: the shell's number for the open connection; ``None`` while it is broken.
        attempt: the client's number for the newest connection it has tried.
        ended: the client was told, on this connection, that there is no more.
        metered: the client grants credit only for what it was told is ready.
        announced: the client was told that something waits, since it last granted credit.
        next_number: the number of the next frame.
        kept_positions: how many positions were sent and are not known to be consumed.
        told: what the task had counted when the client was told last, on this connection.
        backlog: what was sent on an earlier connection and did not arrive; goes out first.
    """

    def __init__(self, client_id: int, max_bytes: int) -> None:
        self.client_id = client_id
        self._max_bytes = max_bytes
        self.connection: int | None = None
        self.attempt = -1
        self.ended = False
        self.metered = False
        self.announced = False
        self.next_number = 0
        self.kept_positions = 0
        self.told: dict[str, int] = {}
        self.backlog = ChunkQueue()
        self._kept_bytes = 0
        self._kept: deque[tuple[int, Chunk]] = deque()
        self._credit = NO_CREDIT
        self._used = 0
        self._most = 0, 0

    @property
    def room(self) -> tuple[int, int]:
        """Elements and bytes that may be sent now; nothing is sent unless both are > 0."""
        nbytes = min(self._credit.bytes, self._max_bytes) - self._kept_bytes
        return self._credit.elements - self._used, nbytes

    @property
    def frame_room(self) -> tuple[int, int]:
        """Elements and bytes of the next frame, at most."""
        (elements, nbytes), (most, most_bytes) = self.room, self._most
        return min(elements, most), min(nbytes, most_bytes)

    def can_resume(self, next_frame: int) -> bool:
        """Whether everything from `next_frame` on is still here."""
        first = self._kept[0][0] if self._kept else self.next_number
        return first <= next_frame <= self.next_number

    def connect(self, connection: int, attempt: int, next_frame: int) -> None:
        """Continue on a new connection; `next_frame` has not been received.

        Numbers from there on are used again: how frames are cut depends on the credit there is now.
        """
        self.connection, self.attempt = connection, attempt
        self.ended = self.announced = False
        self.told = {}
        self._credit, self._used = NO_CREDIT, 0
        unreceived: deque[Chunk] = deque()
        while self._kept and self._kept[-1][0] >= next_frame:
            unreceived.appendleft(self._kept.pop()[1])
        self.next_number = next_frame
        self._count(unreceived, -1)
        self.backlog.put_back(unreceived)

    def credit(self, credit: Credit) -> None:
        """The client has consumed frames, grants more, or asks whether it is the end still."""
        self.ended = False
        if credit.elements > self._credit.elements:
            self.announced = False
        self._credit = credit
        while self._kept and self._kept[0][0] < credit.consumed:
            self._count([self._kept.popleft()[1]], -1)
        self._most = self._cut()

    def _cut(self) -> tuple[int, int]:
        """How large frames should be: what the client would have, in a few of them.

        A user who takes little at a time then has the next frame when one is used up. Credit that
        is metered was given for what is ready, and all of that may go at once.
        """
        window = self._credit.elements - self._used + self.kept_positions
        parts = 1 if self.metered else FRAMES_UNDER_WAY
        nbytes = min(self._credit.bytes, self._max_bytes)
        return max(1, window // parts), max(1, nbytes // FRAMES_UNDER_WAY)

    def send(self, chunk: Chunk) -> Frame:
        """The next frame, kept until it is consumed."""
        frame = Frame(self.next_number, chunk.elements, chunk.error, chunk.nbytes, chunk.shared)
        self.next_number += 1
        self.ended = False
        self._used += chunk.positions
        self._kept.append((frame.number, chunk))
        self._count([chunk], 1)
        return frame

    def return_credit(self) -> int:
        """Gives up the credit that is not used; returns how much it was."""
        unused = max(0, self._credit.elements - self._used)
        self._used += unused
        return unused

    def give_back(self, number: int, taken: int) -> list[Chunk]:
        """What the user has not taken: all after the first `taken` positions of frame `number`."""
        rest = []
        for kept, chunk in self._kept:
            passed = taken if kept == number else 0
            if kept >= number and passed < chunk.positions:
                rest.append(chunk.after(passed))
        rest += self.backlog.drain()
        self._kept.clear()
        self.kept_positions = self._kept_bytes = 0
        return rest

    def _count(self, chunks: Collection[Chunk], sign: int) -> None:
        self.kept_positions += sign * sum(chunk.positions for chunk in chunks)
        self._kept_bytes += sign * sum(chunk.nbytes for chunk in chunks)
