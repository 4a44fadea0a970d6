"""Tables of the state of a service."""

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console, Group, RenderableType

from stoker.cli.quantities import count, duration, size
from stoker.cli.rows import Rows, output_console
from stoker.cli.status_summary import summary
from stoker.service.plurals import plural
from stoker.service.status import ClientStatus, EpochStatus, EventStatus, JobStatus, Status
from stoker.service.status import WorkerStatus as Worker

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
    parts: list[RenderableType] = []
    if status.workers:
        parts += ["", workers_table(_busiest(status.workers, most))]
        parts += _more(len(status.workers), most, "workers")
    if epochs := _current(status.jobs)[:most]:
        parts += ["", epochs_table(epochs, short_name)]
        parts += _more(sum(len(job.epochs) for job in status.jobs), len(epochs), "epochs")
    clients = [(job, client) for job in status.jobs for client in job.clients]
    if clients:
        parts += ["", clients_table(clients[:most])]
        parts += _more(len(clients), most, "clients")
    if status.events:
        shown = status.events[-min(SHOWN_EVENTS, most or SHOWN_EVENTS) :]
        parts += ["", events_table(shown)]
    return Group(*parts)


def _busiest(workers: list[Worker], most: int | None) -> Sequence[Worker]:
    if most is None or len(workers) <= most:
        return workers
    return sorted(workers, key=lambda worker: -worker.elements_per_second)[:most]


def _current(jobs: Iterable[JobStatus]) -> list[tuple[JobStatus, EpochStatus]]:
    """Return the epochs that have not ended, failed ones, and then the latest of other jobs."""
    found, ended = [], []
    for job in jobs:
        epochs = [each for each in reversed(job.epochs) if each.state not in _ENDED]
        found += [(job, epoch) for epoch in epochs]
        if job.epochs and not epochs:
            ended.append((job, job.epochs[-1]))
    return found + ended


def _more(number: int, most: int | None, what: str) -> list[RenderableType]:
    return [f"  and {number - most:,} more {what}"] if most is not None and number > most else []


def workers_table(workers: Iterable[Worker]) -> Rows:
    """Return the table of workers."""
    found = Rows(
        "WORKER", "STATE", "TASKS", "ELEMENTS/S", "BYTES/S", "UP", "NOTES",
        right="TASKS ELEMENTS/S BYTES/S UP",
    )  # fmt: skip
    for worker in workers:
        cells = [
            worker.address,
            _worker_state(worker),
            f"{worker.active_tasks}/{worker.tasks}",
            count(worker.elements_per_second),
            size(worker.bytes_per_second),
            "" if worker.uptime is None else duration(worker.uptime),
            _worker_notes(worker),
        ]
        found.add(cells, "" if worker.connected else "red")
    return found


def _worker_state(worker: Worker) -> str:
    if not worker.connected:
        return f"silent {duration(worker.silent_seconds)}"
    return "draining" if worker.draining else "serving"


def _worker_notes(worker: Worker) -> str:
    notes = list(worker.tags)
    if worker.shard is not None:
        notes.append(f"shard {worker.shard}")
    if worker.loading is not None:
        notes.append(str(worker.loading))
    return ", ".join(notes)


def short_name(job: JobStatus) -> str:
    """Return the name of a job; of one without a name, enough to tell it from others."""
    return job.name if job.named or len(job.name) <= 17 else f"{job.name[:14]}..."


def epochs_table(
    epochs: Iterable[tuple[JobStatus, EpochStatus]],
    name: Callable[[JobStatus], str] = lambda job: job.name,
) -> Rows:
    """Return the table of the epochs of jobs, with the names as `name` returns them."""
    found = Rows(
        "JOB", "EPOCH", "MODE", "STATE", "TASKS", "CLIENTS", "ELEMENTS", "ELEMENTS/S", "LOST",
        right="EPOCH TASKS CLIENTS ELEMENTS ELEMENTS/S",
    )  # fmt: skip
    for job, epoch in epochs:
        cells = [
            name(job),
            epoch.epoch,
            job.processing_mode,
            epoch.state,
            f"{epoch.running_tasks}/{epoch.tasks}",
            str(epoch.clients),
            count(epoch.elements),
            count(epoch.elements_per_second),
            losses(epoch),
        ]
        found.add(cells, "red" if epoch.state == "failed" else "", epoch.error)
    return found


def losses(epoch: EpochStatus) -> str:
    """Return what an epoch has lost, or ""."""
    numbers = [
        (epoch.tasks_lost, "task"),
        (epoch.elements_lost, "element"),
        (epoch.splits_lost, "split"),
        (epoch.errors, "error"),
        (epoch.poisoned, "poisoned call"),
    ]
    return ", ".join(plural(number, noun) for number, noun in numbers if number)


def clients_table(clients: Iterable[tuple[JobStatus, ClientStatus]]) -> Rows:
    """Return the table of clients."""
    found = Rows(
        "CLIENT OF", "EPOCH", "ELEMENTS", "ELEMENTS/S", "BYTES/S", "WAITS", "WHAT IS SLOW",
        right="EPOCH ELEMENTS ELEMENTS/S BYTES/S WAITS",
    )  # fmt: skip
    for job, client in clients:
        index = "" if client.consumer_index is None else f" #{client.consumer_index}"
        silent = "" if client.connected else f"silent {duration(client.silent_seconds)}"
        cells = [
            f"{short_name(job)}{index}",
            client.epoch,
            count(client.elements),
            count(client.elements_per_second),
            size(client.bytes_per_second),
            "" if client.waiting is None else f"{client.waiting:.0%}",
            silent or client.sentence,
        ]
        found.add(cells, "" if client.connected else "red")
    return found


def events_table(events: Iterable[EventStatus]) -> Rows:
    """Return the table of losses and failures."""
    found = Rows("AGO", "LEVEL", "EVENT", right="AGO")
    for event in events:
        where = f" (job {event.job}, epoch {event.epoch})" if event.job else ""
        found.add([duration(event.seconds_ago), event.level, f"{event.text}{where}"])
    return found
