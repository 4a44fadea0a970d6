"""The state of a service in one sentence."""

from stoker.cli.quantities import count, size
from stoker.service.plurals import plural
from stoker.service.status import Status


def summary(status: Status) -> str:
    """Return the state of the service as one sentence."""
    clients = sum(len(job.clients) for job in status.jobs)
    parts = [_working(status, clients)]
    failed = sum(epoch.state == "failed" for job in status.jobs for epoch in job.epochs)
    if failed:
        parts.append(f"{plural(failed, 'epoch')} failed")
    if lost := lost_text(status):
        parts.append(lost)
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


def lost_text(status: Status) -> str:
    """Return what the epochs that the dispatcher knows have lost, or ""."""
    epochs = [epoch for job in status.jobs for epoch in job.epochs]
    numbers = [
        (sum(epoch.tasks_lost for epoch in epochs), "task"),
        (sum(epoch.elements_lost for epoch in epochs), "element"),
        (sum(epoch.splits_lost for epoch in epochs), "split"),
    ]
    lost = [plural(number, noun) for number, noun in numbers if number]
    return f"lost: {', '.join(lost)}" if lost else ""
