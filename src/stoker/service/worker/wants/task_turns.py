"""The turns that the pipelines of tasks by position compute."""

from collections.abc import Mapping

from stoker.service.worker import actions as a
from stoker.service.worker.outbox import Outbox
from stoker.service.worker.tasks.task import Task
from stoker.service.worker.wants.position_buffer import PositionBuffer


class TaskTurns:
    """Gives pipelines the positions that clients want, when the pipelines ask.

    Args:
        tasks: the tasks of the worker by id.
        outbox: the actions.
        buffer_bytes: about how many bytes a task computes ahead of its readers.
    """

    def __init__(self, tasks: Mapping[int, Task], outbox: Outbox, buffer_bytes: int) -> None:
        self._tasks = tasks
        self._outbox = outbox
        self._buffer_bytes = buffer_bytes
        self._asking: set[int] = set()

    def need(self, task_id: int) -> None:
        """Get the next turn of a task's pipeline, as soon as there is one."""
        task = self._tasks.get(task_id)
        if task is not None:
            self._asking.add(task_id)
            self.give(task)

    def give(self, task: Task) -> None:
        """Give a pipeline that asks its next turn, if there is one."""
        task_id, buffer = task.start.task_id, task.buffer
        if task_id not in self._asking or not isinstance(buffer, PositionBuffer):
            return
        turn = buffer.turn(self._buffer_bytes)
        if turn is not None:
            self._asking.remove(task_id)
            self._outbox.do(a.GiveTurn(task_id, turn))

    def forget(self, task_id: int) -> None:
        """Drop the request of a task that is stopped."""
        self._asking.discard(task_id)
