"""Tables of the state of a service: for each struct its columns, and the texts of cells.

A heading that begins with ">" is that of a column of numbers, which is aligned to the right.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from stoker.cli.status.quantities import count, duration, size
from stoker.cli.status.rows import Rows
from stoker.service.plurals import plural
from stoker.service.status import (
    ClientStatus,
    DatasetStatus,
    EpochStatus,
    EventStatus,
    JobStatus,
    TaskStatus,
    WorkerStatus,
)

T = TypeVar("T")
Columns: TypeAlias = Mapping[str, Callable[[T], str]]

_CARDINALITIES = {-1: "infinite", -2: "unknown"}
_LOST = {"tasks_lost": "task", "elements_lost": "element", "splits_lost": "split"}
_FAILED = {"errors": "error", "poisoned": "poisoned call"}


def losses(epochs: Iterable[EpochStatus], nouns: Mapping[str, str] = _LOST) -> str:
    """Return how much of what epochs have lost, or ""."""
    found = list(epochs)
    numbers = {noun: sum(getattr(x, field) for x in found) for field, noun in nouns.items()}
    return ", ".join(plural(number, noun) for noun, number in numbers.items() if number)


def short_name(job: JobStatus) -> str:
    """Return the name of a job; of one without a name, enough to tell it from others."""
    return job.name if job.named or len(job.name) <= 17 else f"{job.name[:14]}..."


def cardinality(dataset: DatasetStatus) -> str:
    """Return the number of elements of a dataset."""
    return _CARDINALITIES.get(dataset.cardinality) or f"{dataset.cardinality:,}"


def tree_size(dataset: DatasetStatus) -> str:
    """Return the size of the tree of a dataset."""
    return size(dataset.tree_bytes) if dataset.tree_bytes else "dropped"


def _silent(peer: WorkerStatus | ClientStatus) -> str:
    return f"silent {duration(peer.silent_seconds)}"


def _worker_state(worker: WorkerStatus) -> str:
    if not worker.connected:
        return _silent(worker)
    return "draining" if worker.draining else "serving"


def _worker_notes(worker: WorkerStatus) -> str:
    shard = [] if worker.shard is None else [f"shard {worker.shard}"]
    loading = [] if worker.loading is None else [str(worker.loading)]
    return ", ".join([*worker.tags, *shard, *loading])


def _client_name(job: JobStatus, client: ClientStatus) -> str:
    index = "" if client.consumer_index is None else f" #{client.consumer_index}"
    return f"{short_name(job)}{index}"


WORKERS: Columns[WorkerStatus] = {
    "WORKER": lambda worker: worker.address,
    "STATE": _worker_state,
    ">TASKS": lambda worker: f"{worker.active_tasks}/{worker.tasks}",
    ">ELEMENTS/S": lambda worker: count(worker.elements_per_second),
    ">BYTES/S": lambda worker: size(worker.bytes_per_second),
    ">UP": lambda worker: "" if worker.uptime is None else duration(worker.uptime),
    "NOTES": _worker_notes,
}

EPOCHS: Columns[tuple[JobStatus, EpochStatus]] = {
    ">EPOCH": lambda found: found[1].epoch,
    "MODE": lambda found: found[0].processing_mode,
    "STATE": lambda found: found[1].state,
    ">TASKS": lambda found: f"{found[1].running_tasks}/{found[1].tasks}",
    ">CLIENTS": lambda found: str(found[1].clients),
    ">ELEMENTS": lambda found: count(found[1].elements),
    ">ELEMENTS/S": lambda found: count(found[1].elements_per_second),
    "LOST": lambda found: losses([found[1]], _LOST | _FAILED),
}

CLIENTS: Columns[tuple[JobStatus, ClientStatus]] = {
    "CLIENT OF": lambda found: _client_name(*found),
    ">EPOCH": lambda found: found[1].epoch,
    ">ELEMENTS": lambda found: count(found[1].elements),
    ">ELEMENTS/S": lambda found: count(found[1].elements_per_second),
    ">BYTES/S": lambda found: size(found[1].bytes_per_second),
    ">WAITS": lambda found: "" if found[1].waiting is None else f"{found[1].waiting:.0%}",
    "WHAT IS SLOW": lambda found: found[1].sentence if found[1].connected else _silent(found[1]),
}

EVENTS: Columns[EventStatus] = {
    ">AGO": lambda event: duration(event.seconds_ago),
    "LEVEL": lambda event: event.level,
    "EVENT": lambda event: (
        f"{event.text}{f' (job {event.job}, epoch {event.epoch})' if event.job else ''}"
    ),
}

TASKS: Columns[TaskStatus] = {
    "WORKER": lambda task: task.worker,
    "STATE": lambda task: f"{task.state}{f': {task.lost}' if task.lost else ''}",
    ">CLIENTS": lambda task: str(task.clients),
    ">ELEMENTS": lambda task: count(task.elements),
    ">ELEMENTS/S": lambda task: count(task.elements_per_second),
    ">BYTES/S": lambda task: size(task.bytes_per_second),
    ">ERRORS": lambda task: count(task.errors),
}

DATASETS: Columns[DatasetStatus] = {
    "DATASET": lambda dataset: dataset.dataset_id,
    ">ELEMENTS": cardinality,
    ">TREE": tree_size,
    "KEPT": lambda dataset: "yes" if dataset.kept else "no",
    "JOBS": lambda dataset: ", ".join(dataset.jobs),
}


def workers_table(workers: Iterable[WorkerStatus]) -> Rows:
    """Return the table of workers."""
    return Rows(workers, WORKERS, is_red=lambda worker: not worker.connected)


def epochs_table(
    epochs: Iterable[tuple[JobStatus, EpochStatus]],
    name: Callable[[JobStatus], str] = lambda job: job.name,
) -> Rows:
    """Return the table of the epochs of jobs, with the names as `name` returns them."""
    return Rows(
        epochs,
        {"JOB": lambda found: name(found[0]), **EPOCHS},
        is_red=lambda found: found[1].state == "failed",
        note=lambda found: found[1].error,
    )


def clients_table(clients: Iterable[tuple[JobStatus, ClientStatus]]) -> Rows:
    """Return the table of clients."""
    return Rows(clients, CLIENTS, is_red=lambda found: not found[1].connected)
