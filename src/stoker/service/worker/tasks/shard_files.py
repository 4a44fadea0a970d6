"""The files of shards, for the pipelines of a worker under static sharding."""

from collections.abc import Container

from stoker.service import messages as m
from stoker.service.worker import actions as a
from stoker.service.worker.outbox import Outbox


class ShardFiles:
    """Asks the dispatcher for files, and gives them to the sources of pipelines.

    Args:
        tasks: the ids of the tasks of the worker.
        outbox: the actions.
    """

    def __init__(self, tasks: Container[int], outbox: Outbox) -> None:
        self._tasks = tasks
        self._outbox = outbox
        self._unanswered: dict[m.ShardRequest, None] = {}

    def need(self, task_id: int, source: int, start: int) -> None:
        """Get files of the shard of a task, from position `start` of them on."""
        if task_id in self._tasks:
            request = m.ShardRequest(task_id, source, start)
            # Kept until the answer, which is lost with a session that breaks.
            self._unanswered[request] = None
            self._outbox.send_to_dispatcher(request)

    def reattach(self) -> None:
        """Repeat on a new session the requests that are not answered."""
        for request in self._unanswered:
            self._outbox.send_to_dispatcher(request)

    def give(self, page: m.ShardPage) -> None:
        """Handle files of the dispatcher."""
        request = m.ShardRequest(page.task_id, page.source, page.start)
        if request in self._unanswered:  # not if it was repeated on a new session
            del self._unanswered[request]
            self._outbox.do(a.GiveFiles(page))

    def forget(self, task_id: int) -> None:
        """Drop the requests of a task that is stopped."""
        self._unanswered = {x: None for x in self._unanswered if x.task_id != task_id}
