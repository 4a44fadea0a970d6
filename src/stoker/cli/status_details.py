"""Lists and descriptions of jobs and datasets."""

from collections.abc import Iterable

from rich.console import Console

from stoker.cli.quantities import count, size
from stoker.cli.rows import Rows, output_console
from stoker.cli.status_view import clients_table, epochs_table
from stoker.service.status import DatasetStatus, JobStatus, TaskStatus

_CARDINALITIES = {-1: "infinite", -2: "unknown"}


def print_jobs(jobs: list[JobStatus]) -> None:
    """Print one line for each epoch of each job."""
    console = output_console()
    if not jobs:
        console.print("no jobs")
        return
    console.print(epochs_table((job, epoch) for job in jobs for epoch in job.epochs))


def print_job(job: JobStatus) -> None:
    """Print the parameters of a job, and its epochs, tasks and clients."""
    console = output_console()
    parts = [f"mode {job.processing_mode}", f"target_workers {job.target_workers}"]
    if job.num_consumers is not None:
        parts.append(f"{job.num_consumers} consumers")
    if job.cross_trainer_cache:
        parts.append("a cross-trainer cache")
    lines = [f"job {job.name}: {', '.join(parts)}", f"dataset {job.dataset_id}", ""]
    _print_lines(console, lines)
    console.print(epochs_table((job, epoch) for epoch in job.epochs))
    for epoch in job.epochs:
        if epoch.details:
            _print_lines(console, ["", f"Tasks of epoch {epoch.epoch}"])
            console.print(_tasks_table(epoch.details))
    if job.clients:
        console.print()
        console.print(clients_table((job, client) for client in job.clients))


def _tasks_table(tasks: Iterable[TaskStatus]) -> Rows:
    found = Rows(
        "WORKER", "STATE", "CLIENTS", "ELEMENTS", "ELEMENTS/S", "BYTES/S", "ERRORS",
        right="CLIENTS ELEMENTS ELEMENTS/S BYTES/S ERRORS",
    )  # fmt: skip
    for task in tasks:
        cells = [
            task.worker,
            f"{task.state}{f': {task.lost}' if task.lost else ''}",
            str(task.clients),
            count(task.elements),
            count(task.elements_per_second),
            size(task.bytes_per_second),
            count(task.errors),
        ]
        found.add(cells)
    return found


def print_datasets(datasets: list[DatasetStatus]) -> None:
    """Print one line for each dataset."""
    console = output_console()
    if not datasets:
        console.print("no datasets")
        return
    found = Rows("DATASET", "ELEMENTS", "TREE", "KEPT", "JOBS", right="ELEMENTS TREE")
    for dataset in datasets:
        cells = [
            dataset.dataset_id,
            _cardinality(dataset),
            size(dataset.tree_bytes) if dataset.tree_bytes else "dropped",
            "yes" if dataset.kept else "no",
            ", ".join(dataset.jobs),
        ]
        found.add(cells)
    console.print(found)


def print_dataset(dataset: DatasetStatus) -> None:
    """Print a dataset, and its nodes."""
    kept = "registered, kept until it is forgotten" if dataset.kept else "until its last job ends"
    lines = [
        f"dataset {dataset.dataset_id}",
        f"elements: {_cardinality(dataset)}",
        f"compression: {dataset.compression}",
        f"tree: {size(dataset.tree_bytes) if dataset.tree_bytes else 'dropped'}, {kept}",
        f"jobs: {', '.join(dataset.jobs) or 'none'}",
    ]
    details = dataset.details
    if details is not None:
        changed = {name: x for name, x in details.options.items() if x not in (None, False)}
        options = ", ".join(f"{name}={value}" for name, value in changed.items())
        lines += [
            f"element_spec: {details.element_spec}",
            f"options: {options or 'defaults'}",
            f"functions for: Python {details.python}, NumPy {details.numpy}",
            "",
            *details.tree,
        ]
    _print_lines(output_console(), lines)


def _cardinality(dataset: DatasetStatus) -> str:
    return _CARDINALITIES.get(dataset.cardinality) or f"{dataset.cardinality:,}"


def _print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print text of users as it is."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
