"""`stoker drain`: ask workers to leave, and wait until they have."""

import contextlib
import time

import typer

from stoker.cli.asking import ask, get_status, request_or_fail
from stoker.cli.failure import fail
from stoker.errors import NotFoundError, StokerError, UnavailableError
from stoker.service.messages import DrainWorker
from stoker.service.status import WorkerStatus

POLL_SECONDS = 0.25
"""Interval at which the state of draining workers is asked for."""


def drain_workers(dispatcher_address: str, workers: list[str], *, wait: bool) -> None:
    """Ask workers to drain; with `wait` return when all have left."""
    for worker in workers:
        request_or_fail(dispatcher_address, DrainWorker(worker))
    if not wait:
        return
    try:
        _wait_until_left(dispatcher_address, list(workers))
    except StokerError as error:
        fail(str(error))


def _wait_until_left(dispatcher_address: str, workers: list[str]) -> None:
    """Wait until no worker is at the addresses, or another one is.

    Raises:
        StokerError: if the dispatcher refuses a request.
    """
    began = time.monotonic()
    while workers:
        found = _registered(dispatcher_address)
        while found is None:  # it is being restarted
            time.sleep(POLL_SECONDS)
            found = _registered(dispatcher_address)
        for address in list(workers):
            worker = found.get(address)
            if worker is None or _is_another(worker, time.monotonic() - began):
                typer.echo(f"worker {address} has left")
                workers.remove(address)
            elif not worker.draining:
                # A dispatcher without a journal was restarted before the worker had the request.
                with contextlib.suppress(NotFoundError, UnavailableError):  # it has left
                    ask(dispatcher_address, DrainWorker(address))
        if workers:
            time.sleep(POLL_SECONDS)


def _registered(dispatcher_address: str) -> dict[str, WorkerStatus] | None:
    """Return the workers by address; ``None`` while the dispatcher cannot be reached."""
    try:
        return {worker.address: worker for worker in get_status(dispatcher_address).workers}
    except UnavailableError:
        return None


def _is_another(worker: WorkerStatus, waited: float) -> bool:
    """Return whether a worker was started after the request."""
    return not worker.draining and worker.uptime is not None and worker.uptime < waited
