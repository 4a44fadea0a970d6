"""What a client is told of the tasks it reads."""

from collections.abc import Iterable

from stoker.service import messages as m
from stoker.service.dispatcher import jobs
from stoker.service.dispatcher import state as s


def news_for(client: s.Client, changed: Iterable[s.Task]) -> m.Tasks | None:
    """What `client` should know of the tasks that changed; ``None`` if there is nothing to say."""
    iteration = client.iteration
    target = iteration.job.added.parameters.target_workers
    mine = [task for task in changed if jobs.sees(client.process, target, task.worker)]
    added = [] if iteration.stopped else [_info(task) for task in mine if not task.lost]
    lost = [_loss(task) for task in mine if task.lost]
    finished = iteration.finished or (target == "LOCAL" and _finished_here(client))
    return m.Tasks(added, lost, finished) if added or lost or finished else None


def _info(task: s.Task) -> m.TaskInfo:
    worker = task.worker
    return m.TaskInfo(task.task_id, worker.address, worker.transfers, worker.tags)


def _loss(task: s.Task) -> m.TaskLost:
    begun = task.iteration.splits_begun_by(task.task_id)
    return m.TaskLost(task.task_id, task.worker.address, task.lost, begun)


def _finished_here(client: s.Client) -> bool:
    """Whether all tasks in the client's process are over: a LOCAL client reads no others."""
    tasks = [
        task
        for task in client.iteration.tasks.values()
        if jobs.sees(client.process, "LOCAL", task.worker)
    ]
    return any(task.exhausted for task in tasks) and not any(task.running for task in tasks)
