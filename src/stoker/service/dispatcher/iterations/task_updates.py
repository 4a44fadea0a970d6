"""Messages that tell a client about the tasks it reads."""

from collections.abc import Iterable

import msgspec

from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import ClientEntry, TaskEntry
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.keys import reader_key
from stoker.service.plurals import plural


def task_update(
    client: ClientEntry, changed: Iterable[TaskEntry], leave: dict[int, int] | None = None
) -> m.Tasks:
    """Return what `client` must know about tasks.

    Args:
        client: the client.
        changed: tasks that are new to it, or damaged.
        leave: task that it must leave → its reader id.
    """
    iteration = client.iteration
    mode = mode_of(iteration.parameters)
    mine = [task for task in changed if mode.reaches(client, task)]
    return m.Tasks(
        [_info(client, task) for task in mine if client.client_id in task.readers],
        leave or {},
        [mode.loss(task) for task in mine if task.lost],
        dropped=[
            m.ElementsDropped(task.task_id, task.worker.address, task.dropped)
            for task in mine
            if task.dropped
        ],
        computed=mode.is_computed_for(client),
        shared=iteration.shared,
        absent=mode.absent(client),
    )


def whole_update(client: ClientEntry) -> m.Tasks | None:
    """Return the state of all tasks of a client, for a new session; ``None`` if there are none."""
    client_id = client.client_id
    leave = {
        task.task_id: task.leaving[client_id]
        for task in client.tasks.values()
        if client_id in task.leaving
    }
    # Losses too: the message about a loss may have been lost with the last session.
    changed = {**client.tasks, **client.iteration.damaged}
    update = task_update(client, changed.values(), leave)
    return None if update == m.Tasks(shared=update.shared) else update


def waiting_warning(client: ClientEntry, waiting: int, most: int) -> m.Tasks:
    """Return the warning that workers have nothing to do.

    Args:
        client: the client to warn.
        waiting: the number of workers without a task.
        most: the number of tasks that a client reads at a time.
    """
    iteration = client.iteration
    remedy = mode_of(iteration.parameters).sharing.remedy
    clients = len(iteration.clients)
    readers = f"each of its {clients} clients reads" if clients > 1 else "its client reads"
    text = (
        f"{plural(waiting, 'worker has', 'workers have')} no task of job "
        f"{iteration.job.added.job!r}: {readers} at most {most} workers at a time; {remedy}"
    )
    return msgspec.structs.replace(task_update(client, []), warning=text)


def _info(client: ClientEntry, task: TaskEntry) -> m.TaskInfo:
    worker, reader_id = task.worker, task.readers[client.client_id]
    return m.TaskInfo(
        task.task_id,
        worker.address,
        worker.data_transfer_addresses,
        tags=worker.tags,
        reader_id=reader_id,
        key=reader_key(task.key, reader_id),
    )
