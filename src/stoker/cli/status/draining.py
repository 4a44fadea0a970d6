"""`stoker drain`: ask workers to leave, and wait until they have."""

import contextlib
import time

import typer

from stoker.cli.status.asking import ask, get_status, request
from stoker.errors import NotFoundError, StokerError, UnavailableError
from stoker.service.messages import DrainWorker
from stoker.service.status import Status, WorkerStatus

POLL_SECONDS = 0.25
"""Interval at which the state of draining workers is asked for."""

RETURN_SECONDS = 15.0
"""Time in which workers register with a dispatcher that knows nothing of the one before: several
attempts to connect, which are up to 2 s apart, over a network that may come up late."""

RESTART_SECONDS = {False: 30.0, True: 600.0}
"""Longest wait for a dispatcher that cannot be reached; with a journal, as trainers wait."""


def drain_workers(dispatcher_address: str, workers: list[str], *, wait: bool) -> None:
    """Ask workers to drain; with `wait` return when all have left.

    Raises:
        StokerError: as `ask`, or if a worker was lost.
    """
    workers = list(dict.fromkeys(workers))
    began = time.monotonic()
    for worker in workers:
        request(dispatcher_address, DrainWorker(worker))
    if wait:
        _wait_until_left(dispatcher_address, workers, began)


def _wait_until_left(dispatcher_address: str, workers: list[str], began: float) -> None:
    """Wait until no worker is at the addresses, or another one is.

    Args:
        dispatcher_address: the dispatcher.
        workers: their addresses.
        began: time before the first request, on the monotonic clock.

    Raises:
        StokerError: if a worker was lost, or the dispatcher cannot be reached or refuses a request.
    """
    waiting, lost = list(workers), list[str]()
    status = None
    while waiting:
        status = _next_status(dispatcher_address, status)
        waited = time.monotonic() - began
        found = {worker.address: worker for worker in status.workers}
        for address in list(waiting):
            worker = found.get(address)
            if _has_left(worker, status, waited):
                waiting.remove(address)
                if losses := _losses(address, status, waited):
                    lost += losses
                else:
                    typer.echo(f"worker {address} has left")
            # Without an uptime it may be another process, which has only just registered.
            elif worker is not None and not worker.draining and worker.uptime is not None:
                # A dispatcher without a journal was restarted before the worker had the request.
                with contextlib.suppress(NotFoundError, UnavailableError):  # it has left
                    ask(dispatcher_address, DrainWorker(address))
        if waiting:
            time.sleep(POLL_SECONDS)
    if lost:
        raise StokerError("; ".join(lost))


def _next_status(dispatcher_address: str, before: Status | None) -> Status:
    """Return the state of the service; wait while its dispatcher is restarted.

    Raises:
        StokerError: if it cannot be reached for long, or refuses the request.
    """
    limit = RESTART_SECONDS[before is not None and before.journaled]
    since = None
    while True:
        try:
            return get_status(dispatcher_address)
        except UnavailableError as error:
            if since is None:
                since = time.monotonic()
                typer.echo(f"stoker: {error}; waiting {limit:.0f} s for it", err=True)
            elif time.monotonic() - since > limit:
                raise
        time.sleep(POLL_SECONDS)


def _has_left(worker: WorkerStatus | None, status: Status, waited: float) -> bool:
    """Return whether the worker that was asked `waited` seconds ago has left.

    Args:
        worker: the worker at its address.
        status: the state of the service.
        waited: seconds since the request.
    """
    if worker is not None:  # it may have been started since
        return not worker.draining and worker.uptime is not None and worker.uptime < waited
    forgot = not status.journaled and status.uptime < waited
    return not forgot or status.uptime > RETURN_SECONDS


def _losses(address: str, status: Status, waited: float) -> list[str]:
    """Return the warnings about the worker since the request."""
    return [
        event.text
        for event in status.events
        if event.worker == address and event.level == "WARNING" and event.seconds_ago < waited
    ]
