"""The state of a service as text: in one sentence, in tables, and in lists and descriptions."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console, Group, RenderableType

from stoker.cli.status import tables
from stoker.cli.status.quantities import count, size
from stoker.cli.status.rows import Rows, TableSpec, output_console
from stoker.service.plurals import plural
from stoker.service.status import DatasetStatus, EpochStatus, JobStatus, Status, WorkerStatus

T = TypeVar("T")

SHOWN_EVENTS = 10
"""Latest events that the summary shows; ``--json`` has all."""

_ENDED = {"finished", "stopped"}


def print_status(status: Status, console: Console | None = None) -> None:
    """Print the sentence and the tables."""
    console = console or output_console()
    console.print(summary(status), highlight=False)
    console.print(status_tables(status))


def status_tables(status: Status, most: int | None = None) -> RenderableType:
    """Return the tables of workers, epochs, clients and events.

    Of the epochs that have ended only the latest of each job is shown: `stoker jobs list` has all.

    Args:
        status: the state.
        most: most rows of each table; by default all.
    """
    workers = _busiest(status.workers, most)
    epochs = [(tables.short_name(job), job, epoch) for job, epoch in _current(status.jobs)]
    clients = [(job, client) for job in status.jobs for client in job.clients]
    # The latest events are the last.
    events = status.events[-min(SHOWN_EVENTS, most or SHOWN_EVENTS) :]
    number_of_epochs = sum(len(job.epochs) for job in status.jobs)
    return Group(
        *_section(tables.WORKERS, workers[:most], len(status.workers), "workers"),
        *_section(tables.EPOCHS, epochs[:most], number_of_epochs, "epochs"),
        *_section(tables.CLIENTS, clients[:most], len(clients), "clients"),
        *_section(tables.EVENTS, events, len(events), "events"),
    )


def _section(
    table: TableSpec[T], shown: Sequence[T], number: int, what: str
) -> list[RenderableType]:
    """Return an empty line, a table, and how many rows are left out, unless there are none."""
    if not shown:
        return []
    more = [f"  and {number - len(shown):,} more {what}"] if number > len(shown) else []
    return ["", Rows(shown, table), *more]


def _busiest(workers: Sequence[WorkerStatus], most: int | None) -> Sequence[WorkerStatus]:
    # Sorted only if rows are left out: otherwise rows keep their places between two frames.
    if most is None or len(workers) <= most:
        return workers
    return sorted(workers, key=lambda worker: -worker.elements_per_second)


def _current(jobs: Iterable[JobStatus]) -> list[tuple[JobStatus, EpochStatus]]:
    """Return the epochs that have not ended, failed ones, and then the latest of other jobs."""
    found, ended = [], []
    for job in jobs:
        # A failed epoch has not ended, and is shown until the job is removed.
        epochs = [each for each in reversed(job.epochs) if each.state not in _ENDED]
        found += [(job, epoch) for epoch in epochs]
        if job.epochs and not epochs:
            ended.append((job, job.epochs[-1]))
    return found + ended


def summary(status: Status) -> str:
    """Return the state of the service as one sentence."""
    clients = sum(len(job.clients) for job in status.jobs)
    parts = [_working(status, clients)]
    failed = sum(epoch.state == "failed" for job in status.jobs for epoch in job.epochs)
    if failed:
        parts.append(f"{plural(failed, 'epoch')} failed")
    if lost := tables.losses(epoch for job in status.jobs for epoch in job.epochs):
        parts.append(f"lost: {lost}")
    return f"{'; '.join(parts)}."


def _working(status: Status, clients: int) -> str:
    jobs = [job for job in status.jobs if job.clients]
    if not status.workers:
        waits = f"{plural(clients, 'client waits', 'clients wait')}: " * bool(jobs)
        return f"{waits}no worker is registered"
    workers = plural(len(status.workers), "worker")
    draining = sum(worker.draining for worker in status.workers)
    unconnected = sum(not worker.connected for worker in status.workers)
    numbers = {"draining": draining, "not connected": unconnected}
    if remarks := [f"{number} {state}" for state, number in numbers.items() if number]:
        workers += f" ({', '.join(remarks)})"
    elements = sum(worker.elements_per_second for worker in status.workers)
    nbytes = sum(worker.bytes_per_second for worker in status.workers)
    rate = f"{count(elements)} elements/s ({size(nbytes)}/s)"
    if jobs:
        readers = f"{plural(clients, 'client')} of {plural(len(jobs), 'job')}"
        return f"{workers}, {rate}, read by {readers}"
    if elements:
        return f"{workers}, {rate}, read by nobody"
    return f"{workers}, idle: no client reads"


def print_jobs(jobs: list[JobStatus]) -> None:
    """Print one line for each epoch of each job."""
    epochs = [(job.name, job, epoch) for job in jobs for epoch in job.epochs]
    output_console().print(Rows(epochs, tables.EPOCHS) if jobs else "no jobs")


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
    console.print(Rows([(job.name, job, epoch) for epoch in job.epochs], tables.EPOCHS))
    for epoch in job.epochs:
        if epoch.details:
            _print_lines(console, ["", f"Tasks of epoch {epoch.epoch}"])
            console.print(Rows(epoch.details, tables.TASKS))
    if job.clients:
        console.print()
        console.print(Rows([(job, client) for client in job.clients], tables.CLIENTS))


def print_datasets(datasets: list[DatasetStatus]) -> None:
    """Print one line for each dataset."""
    output_console().print(Rows(datasets, tables.DATASETS) if datasets else "no datasets")


def print_dataset(dataset: DatasetStatus) -> None:
    """Print a dataset, and its nodes."""
    kept = "registered, kept until it is forgotten" if dataset.kept else "until its last job ends"
    lines = [
        f"dataset {dataset.dataset_id}",
        f"elements: {tables.cardinality(dataset)}",
        f"compression: {dataset.compression}",
        f"tree: {tables.tree_size(dataset)}, {kept}",
        f"jobs: {', '.join(dataset.jobs) or 'none'}",
    ]
    details = dataset.details
    if details is not None:
        # An option is None or False where the user gave none.
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


def _print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print text of users as it is."""
    for line in lines:
        # A name such as "[red]" is no style, and lines of a tree keep their indentation.
        console.print(line, markup=False, highlight=False, soft_wrap=True)
