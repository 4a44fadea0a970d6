"""Servers in the foreground, until SIGTERM or Ctrl-C."""

import contextlib
import logging
import threading

import typer

from stoker.cli.failure import fail
from stoker.errors import StokerError
from stoker.service import DispatcherConfig, DispatchServer, WorkerConfig
from stoker.service.config import is_unspecified
from stoker.service.logs import LogOptions, log_to_stderr
from stoker.service.shutdown import StopRequest
from stoker.service.worker.process import GRACE
from stoker.service.worker.supervisor import Supervisor

logger = logging.getLogger("stoker.worker")


def run_dispatcher(
    *,
    host: str,
    port: int,
    insecure: bool,
    work_dir: str | None,
    worker_addresses: list[str],
    dispatcher_patience_ms: int,
    log: LogOptions,
) -> None:
    """Run a dispatcher until it is asked to stop, or fails; print its address once it serves."""
    log_to_stderr(log)
    with StopRequest() as stop:
        try:
            config = DispatcherConfig(
                host=host,
                port=port,
                insecure=insecure,
                work_dir=work_dir,
                fault_tolerant_mode=work_dir is not None,
                worker_addresses=worker_addresses,
                dispatcher_patience_ms=dispatcher_patience_ms,
            )
            server = DispatchServer(config)
        except (StokerError, ValueError, OSError) as error:
            fail(str(error))
        where = " (all interfaces)" if is_unspecified(config.host) else ""
        typer.echo(f"dispatcher serves at {server.target}{where}")
        waiting = threading.Thread(target=_ask_when_stopped, args=(server, stop))
        waiting.start()
        try:
            stop.wait()
        finally:
            server.stop()
            waiting.join()
    if server.failure is not None:
        fail(str(server.failure))


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
    cross_trainer_cache_bytes: int,
    grace: float,
    log: LogOptions,
) -> None:
    """Run `processes` workers until asked to stop, then let them drain for `grace` seconds."""
    log_to_stderr(log)
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
                cross_trainer_cache_size_bytes=cross_trainer_cache_bytes,
                shutdown_quiet_period_ms=round(grace * 1000),
            )
            supervisor = Supervisor(config, processes, log)
        except (StokerError, ValueError) as error:
            fail(str(error))
        supervisor.start()
        ended = threading.Event()
        waiting = threading.Thread(target=_ask_when_ended, args=(supervisor, ended, stop))
        waiting.start()
        stop.wait()
        if not ended.is_set():
            logger.info("stopping: trainers have %g s to read what is computed", grace)
        stopping = threading.Thread(target=_stop, args=(supervisor, grace + GRACE, stop))
        stopping.start()
        stop.wait()  # for the end, or for a second signal
        supervisor.stop()
        stopping.join()
        waiting.join()
    try:
        supervisor.join()
    except StokerError as error:
        fail(str(error))


def _ask_when_stopped(server: DispatchServer, stop: StopRequest) -> None:
    """Stop the process when the server stops by an internal error."""
    server.join()
    stop.ask()


def _ask_when_ended(supervisor: Supervisor, ended: threading.Event, stop: StopRequest) -> None:
    # An error is printed by the main thread, which joins again.
    with contextlib.suppress(StokerError):
        supervisor.join()
    ended.set()
    stop.ask()


def _stop(supervisor: Supervisor, grace: float, stop: StopRequest) -> None:
    supervisor.stop(grace)
    stop.ask()
