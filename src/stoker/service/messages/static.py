"""Static sharding: tasks that read the shard of their worker."""

from typing import Any

from stoker.dataset.tree.splits import ShardBy
from stoker.service.messages.session import DispatcherMessage, Message
from stoker.service.messages.tasks import TaskMode


class ShardTask(TaskMode, frozen=True, tag=True, kw_only=True):
    """A task that yields shard `index` of `count`."""

    by: ShardBy
    count: int
    index: int


# By position, so that the dispatcher keeps nothing for a task. (docs/decisions/056)
class ShardRequest(Message, frozen=True, tag=True):
    """Ask for the files of the task's shard of a source, from position `start` of them on."""

    task_id: int
    source: int
    start: int


class ShardPage(DispatcherMessage, frozen=True, tag=True):
    """Answer to `ShardRequest`; `end`: no more follow."""

    task_id: int
    source: int
    start: int
    values: list[Any]
    end: bool
