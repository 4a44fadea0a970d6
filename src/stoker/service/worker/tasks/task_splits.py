"""The splits that the pipelines of a worker read."""

from collections.abc import Mapping

from stoker.service import messages as m
from stoker.service.worker import actions as a
from stoker.service.worker.outbox import Outbox
from stoker.service.worker.tasks.split_queue import SplitQueue
from stoker.service.worker.tasks.task import Task

LONGEST_TICK = 1.0
"""Longest interval between ticks that is expected again; a frozen process has longer ones."""


class TaskSplits:
    """Asks the dispatcher for splits, and gives them to the sources of pipelines.

    Args:
        tasks: the tasks of the worker by id.
        outbox: the actions.

    Attributes:
        draining: the worker begins no splits.
    """

    def __init__(self, tasks: Mapping[int, Task], outbox: Outbox) -> None:
        self.draining = False
        self._tasks = tasks
        self._outbox = outbox
        self._ticked_at: float | None = None
        self._tick_seconds = 0.0

    def start(self, task: Task, now: float) -> None:
        """Ask for the first split of a task if its only source is read for certain.

        It arrives while the pipeline is opened, which saves the first element two round trips.
        """
        sources = task.start.mode.split_sources
        if sources is not None and len(sources) == 1:
            self._outbox.send_to_dispatcher(task.queue(sources[0].number, 0).ask(now))

    def reattach(self, task: Task) -> None:
        """Repeat on a new session the messages that the dispatcher may lack."""
        for done in task.read:
            self._outbox.send_to_dispatcher(done)
        for queue in task.queues.values():
            self._outbox.send_to_dispatcher(queue.reattach())

    def tick(self, now: float) -> None:
        """Announce splits."""
        # Splits that are needed before the next tick must be announced in this one.
        if self._ticked_at is not None:
            self._tick_seconds = min(now - self._ticked_at, LONGEST_TICK)
        self._ticked_at = now
        for task in self._tasks.values():
            for queue in task.queues.values():
                self._outbox.send_to_dispatcher(queue.look_ahead(now, self._tick_seconds))

    def drain(self, task: Task, now: float) -> None:
        """Let a task begin no more splits."""
        for queue in list(task.queues.values()):
            queue.drain()
            task.cut = task.cut or queue.cut
            self._give(task, queue, now)

    # ── splits that the dispatcher assigns ────────────────────────────────────────────────────────
    def need(self, task_id: int, source: int, source_epoch: int, now: float) -> None:
        """Get the next split for a source of the task's pipeline."""
        task = self._tasks.get(task_id)
        if task is None:
            self._outbox.do(a.GiveSplit(task_id, source, source_epoch, []))
            return
        queue = task.queue(source, source_epoch)
        if self.draining and not queue.ended:
            queue.drain()
            task.cut = True
        self._outbox.send_to_dispatcher(queue.need(now))
        self._give(task, queue, now)

    def granted(self, grant: m.SplitGrant, now: float) -> None:
        """Handle splits of the dispatcher."""
        task = self._tasks.get(grant.task_id)
        queue = task.queues.get((grant.source, grant.source_epoch)) if task is not None else None
        if task is not None and queue is not None:
            self._outbox.send_to_dispatcher(queue.granted(grant, now))
            self._give(task, queue, now)

    def give_back(self, task_id: int, now: float) -> None:
        """Return the splits that are not begun."""
        task = self._tasks.get(task_id)
        for queue in task.queues.values() if task is not None else ():
            self._outbox.send_to_dispatcher(queue.give_back(now))

    def _give(self, task: Task, queue: SplitQueue, now: float) -> None:
        split = queue.take(now)
        if split is None:
            return
        self._outbox.do(a.GiveSplit(queue.task_id, queue.source, queue.source_epoch, split))
        if split:
            self._outbox.send_to_dispatcher(queue.look_ahead(now, self._tick_seconds))
        else:
            del task.queues[queue.source, queue.source_epoch]
            done = m.SplitRequest(queue.task_id, queue.source, queue.source_epoch, done=True)
            # Repeated on a new session: without it the dispatcher keeps the splits of the epoch.
            task.read.append(done)
            self._outbox.send_to_dispatcher(done)
