"""One client's reading of one task: numbered frames, credit, and what is kept until consumed."""

from collections import deque

from stoker.service.worker.buffer import Piece
from stoker.wire.frames import Credit, Frame


class Reading:
    """Frames sent to one client, each kept until the client's user has taken all of it.

    Attributes:
        connection: the shell's number for the open connection; ``None`` while it is broken.
        ended: the client was told, on this connection, that there is no more.
        announced: the client was told that something waits, since it last granted credit.
        kept_positions: how many positions were sent and are not known to be consumed.
    """

    def __init__(self, client_id: int) -> None:
        self.client_id = client_id
        self.connection: int | None = None
        self.ended = False
        self.announced = False
        self.next_number = 0
        self.kept_positions = 0
        self._kept_bytes = 0
        self._kept: deque[tuple[Frame, Piece]] = deque()
        self._credit = Credit(0, 0, 0)

    @property
    def room(self) -> tuple[int, int]:
        """Elements and bytes the client would take now; nothing may be sent if either is 0 or less."""
        elements = self._credit.elements - self.kept_positions
        return elements, self._credit.bytes - self._kept_bytes

    def connect(self, connection: int, next_frame: int) -> list[Frame]:
        """Takes up the reading on a new connection; returns the frames to send again.

        `next_frame` is the first the client has not received.
        """
        self.connection = connection
        self.ended = self.announced = False
        return [frame for frame, _ in self._kept if frame.number >= next_frame]

    def can_resume(self, next_frame: int) -> bool:
        """Whether everything from `next_frame` on can still be sent."""
        first = self._kept[0][0].number if self._kept else self.next_number
        return first <= next_frame <= self.next_number

    def credit(self, credit: Credit) -> None:
        """The client has consumed frames, and says how much may be outstanding from here on."""
        self._credit = credit
        self.announced = False
        while self._kept and self._kept[0][0].number < credit.consumed:
            _, piece = self._kept.popleft()
            self.kept_positions -= piece.positions
            self._kept_bytes -= piece.nbytes

    def send(self, piece: Piece) -> Frame:
        """The next frame, kept until it is consumed."""
        frame = Frame(self.next_number, piece.elements, piece.error)
        self.next_number += 1
        self._kept.append((frame, piece))
        self.kept_positions += piece.positions
        self._kept_bytes += piece.nbytes
        return frame

    def give_back(self, number: int, taken: int) -> list[Piece]:
        """What the client's user has not taken: all after the first `taken` positions of `number`."""
        rest = []
        for frame, piece in self._kept:
            if frame.number > number or (frame.number == number and taken == 0):
                rest.append(piece)
            elif frame.number == number and taken < piece.positions:
                left = len(piece.elements) - taken
                share = piece.nbytes * left // len(piece.elements)
                rest.append(Piece(piece.elements[taken:], share))
        self._kept.clear()
        return rest
