"""Rules for which workers run a dataset and which workers a client may read."""

from stoker.service.dispatcher.entities.registered import DatasetInfo, WorkerInfo

NO_LOCAL_CLIENT = "its elements are for clients of its process, which has none left"
"""The reason for which a task for one process is dropped."""


def can_run(dataset: DatasetInfo, worker: WorkerInfo) -> bool:
    """Return whether functions pickled with the dataset's versions run on the worker."""
    return not dataset.runs_python or dataset.versions == worker.versions


# A task that no client can read would compute for nobody. (docs/decisions/057)
def can_read(process: str, target_workers: str, worker: WorkerInfo) -> bool:
    """Return whether a client in `process` reads from `worker`."""
    if is_private(target_workers, worker):
        return bool(process) and process == process_of(worker)
    return True


def is_private(target_workers: str, worker: WorkerInfo) -> bool:
    """Return whether only clients in its own process read from `worker`."""
    if target_workers == "AUTO":
        return "COLOCATED" in (tag.upper() for tag in worker.tags)
    return target_workers == "LOCAL"


def process_of(worker: WorkerInfo) -> str:
    """Return the process that a worker shares with clients, or ""."""
    return worker.data_transfer_addresses.get("local", "").partition("/")[0]
