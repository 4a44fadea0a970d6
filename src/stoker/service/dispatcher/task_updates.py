"""Messages that tell a client about the tasks it reads."""

from collections.abc import Iterable

from stoker.service import messages as m
from stoker.service.dispatcher.entities import Client, Task
from stoker.service.dispatcher.modes import mode_of
from stoker.service.keys import reader_key


def task_update(client: Client, changed: Iterable[Task]) -> m.Tasks | None:
    """Return what `client` must know about the `changed` tasks; ``None`` if nothing."""
    iteration = client.iteration
    mode = mode_of(iteration.parameters)
    mine = [task for task in changed if mode.reads(client, task)]
    added = [] if iteration.stopped else [_info(client, task) for task in mine if not task.lost]
    lost = [mode.loss(task) for task in mine if task.lost]
    dropped = [
        m.ElementsDropped(task.task_id, task.worker.address, task.dropped)
        for task in mine
        if task.dropped
    ]
    computed = mode.is_computed_for(client)
    if not (added or lost or dropped or computed):
        return None
    return m.Tasks(added, lost, dropped, computed, iteration.shared)


def _info(client: Client, task: Task) -> m.TaskInfo:
    worker = task.worker
    return m.TaskInfo(
        task.task_id,
        worker.address,
        worker.data_transfer_addresses,
        worker.tags,
        reader_key(task.key, client.client_id),
    )
