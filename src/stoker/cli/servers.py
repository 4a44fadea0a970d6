"""Servers in the foreground, until SIGTERM or Ctrl-C."""

import logging
import sys
import threading

import typer

from stoker.cli.failure import fail
from stoker.cli.limits import raise_open_files_limit
from stoker.errors import StokerError
from stoker.service import DispatcherConfig, DispatchServer, WorkerConfig
from stoker.service.shutdown import StopRequest
from stoker.service.worker.supervisor import Supervisor


def run_dispatcher(*, host: str, port: int, insecure: bool) -> None:
    """Run a dispatcher until it is asked to stop; print its address once it accepts requests."""
    _log_to_stderr()
    raise_open_files_limit()
    with StopRequest() as stop:
        try:
            server = DispatchServer(DispatcherConfig(host=host, port=port, insecure=insecure))
        except (StokerError, ValueError, OSError) as error:
            fail(str(error))
        typer.echo(f"dispatcher serves at {server.target}")
        try:
            stop.wait()
        finally:
            server.stop()


def run_worker(
    *,
    dispatcher: str,
    host: str,
    port: int,
    processes: int,
    tags: list[str],
    insecure: bool,
    data_transfer_protocol: str | None,
    shared_memory_bytes: int,
) -> None:
    """Run `processes` workers until asked to stop."""
    _log_to_stderr()
    raise_open_files_limit()
    with StopRequest() as stop:
        try:
            config = WorkerConfig(
                dispatcher_address=dispatcher,
                host=host,
                port=port,
                worker_tags=tags,
                insecure=insecure,
                data_transfer_protocol=data_transfer_protocol,
                shared_memory_bytes=shared_memory_bytes,
            )
            supervisor = Supervisor(config, processes)
        except (StokerError, ValueError) as error:
            fail(str(error))
        supervisor.start()
        waiting = threading.Thread(target=_ask_when_ended, args=(supervisor, stop))
        waiting.start()
        stop.wait()
        supervisor.stop()
        waiting.join()
    try:
        supervisor.join()
    except StokerError as error:
        fail(str(error))


def _ask_when_ended(supervisor: Supervisor, stop: StopRequest) -> None:
    try:
        supervisor.join()
    except StokerError:  # printed by the main thread, which joins again
        stop.ask()


def _log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
