"""Rules for which workers run a dataset and which workers a client may read."""

from stoker.service.dispatcher.records import DatasetAdded, WorkerAdded


def can_run(dataset: DatasetAdded, worker: WorkerAdded) -> bool:
    """Return whether functions pickled with the dataset's versions run on the worker."""
    return not dataset.runs_python or dataset.versions == worker.versions


def can_read(process: str, target_workers: str, worker: WorkerAdded) -> bool:
    """Return whether a client in `process` reads from `worker`."""
    local = bool(process) and worker.data_transfer_addresses.get("local", "").startswith(
        f"{process}/"
    )
    if target_workers == "LOCAL":
        return local
    if target_workers == "ANY":
        return True
    return local or "COLOCATED" not in (tag.upper() for tag in worker.tags)
