"""The recorded state of a mode: one field of an iteration, which snapshots store whole."""

from typing import TypeAlias

import msgspec

from stoker.service.dispatcher.modes.coordinated.state import Schedule, ScheduleChange
from stoker.service.messages import RoundPosition

AnyAgreement: TypeAlias = Schedule
AnyAgreementChange: TypeAlias = ScheduleChange
AnyPosition: TypeAlias = RoundPosition


class ModeState(msgspec.Struct, tag=True, eq=False, kw_only=True, dict=True):
    """State of a mode that has none but that of its sharing.

    Attributes:
        agreement: what the clients have agreed on, if they do.
    """

    agreement: AnyAgreement | None = None

    def count_whole(self, place: int | None, sign: int) -> None:
        """Count a task that clients can read whole, or have; with `sign` -1, undo that.

        Args:
            place: the place of its worker among the configured addresses.
            sign: 1 or -1.
        """

    def begun_by(self, task_id: int) -> int:
        """Return the number of splits that a task has begun, where the dispatcher assigns them."""
        return 0

    def finish(self) -> None:
        """Drop what no task will ask for after the end of the iteration."""
