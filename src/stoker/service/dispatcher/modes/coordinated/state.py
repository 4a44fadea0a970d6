"""The recorded state of a coordinated read."""

import msgspec

from stoker.service.messages import RoundPosition, RoundsChange


# Only changes of the schedule are recorded: a schedule written step by step would put the
# dispatcher on the path of each element. (docs/decisions/074)
class ScheduleChange(msgspec.Struct, frozen=True, tag=True):
    """The schedule of a coordinated read changes.

    `starts`: the first position of each consumer that begins, after a change of a number. Changes
    before number `keep_from` are dropped.
    """

    change: RoundsChange
    starts: dict[int, tuple[int, RoundPosition]]
    keep_from: int


class Schedule(msgspec.Struct, tag=True, eq=False):
    """The schedule that the consumers of an iteration have agreed on.

    Attributes:
        finite: the read ends with its data.
        changes: the changes of the schedule, as far as consumers may need them.
        indexes: the indexes of consumers that have opened the iteration.
        left_at: index of a consumer that has closed → its position, for its successor.
        starts: consumer → the number of the change with which it begins, as soon as that is agreed
            on, and its first position, if that is after the change.
    """

    finite: bool = False
    changes: list[RoundsChange] = []
    indexes: dict[int, None] = {}
    left_at: dict[int, RoundPosition] = {}
    starts: dict[int, tuple[int, RoundPosition | None]] = {}

    @property
    def ended(self) -> bool:
        """True once the last round is known."""
        return bool(self.changes) and self.changes[-1].last

    def join(self, client_id: int, index: int) -> None:
        """Add a consumer; where a consumer that restarts begins is agreed on later."""
        changes = self.changes
        # A consumer that was never there reads from the beginning, if the first change is kept.
        if not changes or (index not in self.indexes and changes[0].number == 0):
            self.starts[client_id] = 0, None
        elif self.ended:
            self.starts[client_id] = changes[-1].number, None
        self.indexes[index] = None

    def leave(self, client_id: int, index: int, position: RoundPosition | None) -> None:
        """Remove a consumer, and keep its position for its successor."""
        self.starts.pop(client_id, None)
        if position is not None:
            # Workers keep what a consumer lacks as long as the others are one round ahead at most.
            for each in [x for x, other in self.left_at.items() if other.slot < position.slot - 1]:
                del self.left_at[each]
            self.left_at[index] = position
        elif not self.starts:
            self.left_at.clear()
