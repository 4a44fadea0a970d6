"""State of one client that reads a task: numbered frames, credit, unconsumed chunks."""

from collections import deque
from collections.abc import Collection

from stoker.errors import InvalidArgumentError
from stoker.service.chunk import Chunk
from stoker.service.worker.tasks.reader import Reader
from stoker.wire.frames import Credit, Frame, Want

NO_CREDIT = Credit(0, 0, 0)

FRAMES_IN_FLIGHT = 4
"""Frames in one window: one is in use, one is buffered here, two are in flight."""


class ReaderState(Reader):
    """Frames sent to one client, each kept until the client's user has consumed all of it.

    Args:
        client_id: the client.
        max_bytes: about the most bytes to send and keep, even if the client grants more.
        consumer_index: its index in a coordinated read, or ``None``.
    """

    def __init__(
        self,
        client_id: int,
        max_bytes: int,
        consumer_index: int | None = None,
    ) -> None:
        super().__init__(client_id, consumer_index)
        self._max_bytes = max_bytes
        self._kept: deque[tuple[int, Chunk]] = deque()
        self._credit = NO_CREDIT
        self._used = 0
        self._frame_limits = 0, 0

    @property
    def room(self) -> tuple[int, int]:
        nbytes = min(self._credit.bytes, self._max_bytes) - self.kept_bytes
        return self._credit.elements - self._used, nbytes

    @property
    def frame_room(self) -> tuple[int, int]:
        (elements, nbytes), (most, most_bytes) = self.room, self._frame_limits
        return min(elements, most), min(nbytes, most_bytes)

    def can_resume(self, next_frame: int) -> bool:
        first_kept = self._kept[0][0] if self._kept else self.next_number
        return first_kept <= next_frame <= self.next_number

    def connect(self, connection: int, attempt: int, next_frame: int) -> None:
        """Continue on a new connection; the client has not received `next_frame`.

        Numbers from there on are used again: the sizes of frames depend on the new credit.
        """
        super().connect(connection, attempt, next_frame)
        self._credit, self._used = NO_CREDIT, 0
        unreceived: deque[Chunk] = deque()
        while self._kept and self._kept[-1][0] >= next_frame:
            unreceived.appendleft(self._kept.pop()[1])
        # Errors and elements that did not arrive go out first, in their order.
        self._count(unreceived, -1)
        self.backlog.put_back(unreceived)

    def credit(self, credit: Credit) -> None:
        """Apply a `Credit`: consumed frames, more credit, or a request to confirm the end."""
        self.ended = False
        # A repeated grant answers no `Ready`: it only acknowledges consumed frames.
        if credit.elements > self._credit.elements:
            self.announced = False
        self._credit = credit
        while self._kept and self._kept[0][0] < credit.consumed:
            self._count([self._kept.popleft()[1]], -1)
        self._frame_limits = self._new_frame_limits()

    def want(self, want: Want) -> None:
        raise InvalidArgumentError(
            "this task sends its elements in their order: send `Credit`, got `Want`"
        )

    def _new_frame_limits(self) -> tuple[int, int]:
        """Return the largest frame: a part of the client's window.

        A user who consumes slowly then has the next frame when one is used up. Metered credit was
        granted for elements that are ready, so all of them may go in one frame.
        """
        window = self._credit.elements - self._used + self.kept_positions
        parts = 1 if self.metered else FRAMES_IN_FLIGHT
        nbytes = min(self._credit.bytes, self._max_bytes)
        return max(1, window // parts), max(1, nbytes // FRAMES_IN_FLIGHT)

    # Frames are kept until consumed; returned credit is the acknowledgement. (docs/decisions/023)
    def send(self, chunk: Chunk) -> Frame:
        """Return the next frame and keep it until it is consumed."""
        frame = Frame(self.next_number, chunk.elements, chunk.error, chunk.nbytes, chunk.shared)
        self.next_number += 1
        self.ended = False
        self._used += chunk.positions
        self._kept.append((frame.number, chunk))
        self._count([chunk], 1)
        return frame

    def return_credit(self) -> int:
        unused = max(0, self._credit.elements - self._used)
        # Credit that no element will use is needed at the other workers of the client.
        self._used += unused
        return unused

    def give_back(self, number: int, consumed: int) -> list[Chunk]:
        rest = []
        for kept, chunk in self._kept:
            skipped = consumed if kept == number else 0
            if kept >= number and skipped < chunk.positions:
                rest.append(chunk.after(skipped))
        rest += self.backlog.drain()
        self._kept.clear()
        self.kept_positions = self.kept_bytes = 0
        return rest

    def _count(self, chunks: Collection[Chunk], sign: int) -> None:
        self.kept_positions += sign * sum(chunk.positions for chunk in chunks)
        self.kept_bytes += sign * sum(chunk.nbytes for chunk in chunks)
