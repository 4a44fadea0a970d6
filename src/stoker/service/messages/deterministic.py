"""DETERMINISTIC: tasks that compute the positions of an epoch that clients ask for."""

from stoker.service.messages.sharing import ByPosition
from stoker.service.messages.tasks import AnySharing, TaskMode


class PositionTask(TaskMode, frozen=True, tag=True, kw_only=True):
    """A task that yields the positions that clients ask for, in [0, `length`)."""

    length: int
    sharing: AnySharing = ByPosition()
