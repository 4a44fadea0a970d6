"""Tables of the state of a service: for each struct its columns, and the texts of cells.

A heading that begins with ">" is that of a column of numbers, which is aligned to the right.
"""

from collections.abc import Iterable, Mapping

from stoker.cli.status.quantities import count, duration, size
from stoker.cli.status.rows import TableSpec
from stoker.service import status as st
from stoker.service.plurals import plural

_CARDINALITIES = {-1: "infinite", -2: "unknown"}
_LOST = {"tasks_lost": "task", "elements_lost": "element", "splits_lost": "split"}
_FAILED = {"errors": "error", "poisoned": "poisoned call"}


def losses(epochs: Iterable[st.EpochStatus], nouns: Mapping[str, str] = _LOST) -> str:
    """Return how much of what epochs have lost, or ""."""
    found = list(epochs)
    numbers = {noun: sum(getattr(x, field) for x in found) for field, noun in nouns.items()}
    return ", ".join(plural(number, noun) for noun, number in numbers.items() if number)


def short_name(job: st.JobStatus) -> str:
    """Return the name of a job; of one without a name, enough to tell it from others."""
    # The name of a job without a name is a long random id.
    return job.name if job.named or len(job.name) <= 17 else f"{job.name[:14]}..."


def cardinality(dataset: st.DatasetStatus) -> str:
    """Return the number of elements of a dataset."""
    return _CARDINALITIES.get(dataset.cardinality) or f"{dataset.cardinality:,}"


def tree_size(dataset: st.DatasetStatus) -> str:
    """Return the size of the tree of a dataset."""
    return size(dataset.tree_bytes) if dataset.tree_bytes else "dropped"


def _silent(peer: st.WorkerStatus | st.ClientStatus) -> str:
    return f"silent {duration(peer.silent_seconds)}"


def _worker_state(worker: st.WorkerStatus) -> str:
    # Silence first: what a silent worker last reported may be out of date.
    if not worker.connected:
        return _silent(worker)
    return "draining" if worker.draining else "serving"


def _worker_notes(worker: st.WorkerStatus) -> str:
    shard = [] if worker.shard is None else [f"shard {worker.shard}"]
    loading = [] if worker.loading is None else [str(worker.loading)]
    return ", ".join([*worker.tags, *shard, *loading])


def _client_name(job: st.JobStatus, client: st.ClientStatus) -> str:
    index = "" if client.consumer_index is None else f" #{client.consumer_index}"
    return f"{short_name(job)}{index}"


def _client_epoch(client: st.ClientStatus) -> str:
    """Return the epoch, and where the client is in a deterministic one."""
    at = "" if client.position is None else f" at {client.position:,}"
    return f"{client.epoch}{at}"


WORKERS = TableSpec[st.WorkerStatus](
    {
        "WORKER": lambda worker: worker.address,
        "STATE": _worker_state,
        ">TASKS": lambda worker: f"{worker.active_tasks}/{worker.tasks}",
        ">ELEMENTS/S": lambda worker: count(worker.elements_per_second),
        ">BYTES/S": lambda worker: size(worker.bytes_per_second),
        ">UP": lambda worker: "" if worker.uptime is None else duration(worker.uptime),
        "NOTES": _worker_notes,
    },
    is_red=lambda worker: not worker.connected,
)

EPOCHS = TableSpec[tuple[str, st.JobStatus, st.EpochStatus]](
    {
        "JOB": lambda found: found[0],
        ">EPOCH": lambda found: found[2].epoch,
        "MODE": lambda found: found[1].processing_mode,
        "STATE": lambda found: found[2].state,
        ">TASKS": lambda found: f"{found[2].running_tasks}/{found[2].tasks}",
        ">CLIENTS": lambda found: str(found[2].clients),
        ">ELEMENTS": lambda found: count(found[2].elements),
        ">ELEMENTS/S": lambda found: count(found[2].elements_per_second),
        "LOST": lambda found: losses([found[2]], _LOST | _FAILED),
    },
    is_red=lambda found: found[2].state == "failed",
    note=lambda found: found[2].error,
)
"""Epochs, each with the name of its job as it is shown, and the job."""

CLIENTS = TableSpec[tuple[st.JobStatus, st.ClientStatus]](
    {
        "CLIENT OF": lambda found: _client_name(*found),
        ">EPOCH": lambda found: _client_epoch(found[1]),
        ">ELEMENTS": lambda found: count(found[1].elements),
        ">ELEMENTS/S": lambda found: count(found[1].elements_per_second),
        ">BYTES/S": lambda found: size(found[1].bytes_per_second),
        ">WAITS": lambda found: "" if found[1].waiting is None else f"{found[1].waiting:.0%}",
        # The last sentence of a silent client is out of date.
        "WHAT IS SLOW": lambda found: (
            found[1].sentence if found[1].connected else _silent(found[1])
        ),
    },
    is_red=lambda found: not found[1].connected,
)

EVENTS = TableSpec[st.EventStatus](
    {
        ">AGO": lambda event: duration(event.seconds_ago),
        "LEVEL": lambda event: event.level,
        "EVENT": lambda event: (
            f"{event.text}{f' (job {event.job}, epoch {event.epoch})' if event.job else ''}"
        ),
    }
)

TASKS = TableSpec[st.TaskStatus](
    {
        "WORKER": lambda task: task.worker,
        "STATE": lambda task: f"{task.state}{f': {task.lost}' if task.lost else ''}",
        ">CLIENTS": lambda task: str(task.clients),
        ">ELEMENTS": lambda task: count(task.elements),
        ">ELEMENTS/S": lambda task: count(task.elements_per_second),
        ">BYTES/S": lambda task: size(task.bytes_per_second),
        ">ERRORS": lambda task: count(task.errors),
    }
)

DATASETS = TableSpec[st.DatasetStatus](
    {
        "DATASET": lambda dataset: dataset.dataset_id,
        ">ELEMENTS": cardinality,
        ">TREE": tree_size,
        "KEPT": lambda dataset: "yes" if dataset.kept else "no",
        "JOBS": lambda dataset: ", ".join(dataset.jobs),
    }
)
