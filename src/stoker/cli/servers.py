"""Servers in the foreground, until SIGTERM or Ctrl-C."""

import contextlib
import logging
import threading
from collections.abc import Callable

import typer

from stoker.cli.options.options import LogFields, ProcessFields
from stoker.cli.options.units import OptionError
from stoker.cli.options.values import Values
from stoker.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    StokerError,
)
from stoker.service import DispatcherConfig, DispatchServer, WorkerConfig
from stoker.service.config import parse_service
from stoker.service.plurals import plural
from stoker.service.process.logs import LogOptions, json_line, log_to_stderr
from stoker.service.process.shutdown import StopRequest
from stoker.service.worker.processes.process import GRACE
from stoker.service.worker.processes.supervisor import Supervisor
from stoker.wire.addresses import is_unspecified

logger = logging.getLogger("stoker.cli")

_WRONG_WORK_DIR = (InvalidArgumentError, NotFoundError, PermissionDeniedError, DataLossError)
"""Errors of a dispatcher that cannot start: an operator must change `work_dir` or its content."""


def run_dispatcher(values: Values) -> None:
    """Run a dispatcher until it is asked to stop, or fails; print its address once it serves.

    Raises:
        OptionError: if the configuration is not valid, or the journal cannot be used.
        StokerError: if the dispatcher cannot start, or failed.
    """
    config = values.build(DispatcherConfig, fault_tolerant_mode="work_dir" in values.given)
    log = _start_log(values)
    with StopRequest() as stop:
        try:
            server = DispatchServer(config)
        except _WRONG_WORK_DIR as error:
            raise OptionError(values.with_origins(str(error))) from error
        # Such as a port that is in use, or a host that cannot be resolved.
        except (ValueError, OSError) as error:
            raise StokerError(str(error)) from error
        where = " (all interfaces)" if is_unspecified(config.host) else ""
        line = f"dispatcher serves at {server.target}{where}"
        typer.echo(json_line(logging.INFO, logger.name, line) if log.format == "json" else line)
        waiting, _ = _ask_after(server.join, stop)
        try:
            stop.wait()
        finally:
            server.stop()
            waiting.join()
    if isinstance(server.failure, DataLossError):
        raise OptionError(str(server.failure)) from server.failure
    if server.failure is not None:
        raise server.failure


def run_worker(values: Values) -> None:
    """Run worker processes until asked to stop, then let trainers read until the grace ends.

    Raises:
        OptionError: if the configuration is not valid.
        StokerError: if the processes cannot start, or failed.
    """
    config = values.build(WorkerConfig)
    processes = values.build(ProcessFields).processes
    grace = config.shutdown_quiet_period_ms / 1000
    log = _start_log(values)
    with StopRequest() as stop:
        try:
            supervisor = Supervisor(config, processes, log)
        except InvalidArgumentError as error:
            raise OptionError(values.with_origins(str(error))) from error
        except ValueError as error:
            raise StokerError(str(error)) from error
        dispatcher_address = parse_service(config.dispatcher_address)[1]
        number = plural(processes, "worker process", "worker processes")
        logger.info("starting %s of the dispatcher at %s", number, dispatcher_address)
        supervisor.start()
        waiting, ended = _ask_after(supervisor.join, stop)
        stop.wait()
        if not ended.is_set():
            logger.info("stopping: trainers have %g s to read what is computed", grace)
        stopping, _ = _ask_after(lambda: supervisor.stop(grace + GRACE), stop)
        stop.wait()  # for the end, or for a second signal
        supervisor.stop()  # ends the grace of the first call
        stopping.join()
        waiting.join()
    supervisor.join()  # raises the error of the processes


def _ask_after(
    action: Callable[[], object], stop: StopRequest
) -> tuple[threading.Thread, threading.Event]:
    """Run `action` on a thread, and ask to stop when it has ended; return the thread and its end.

    A thread, because the main thread waits for signals.
    """
    ended = threading.Event()

    def run() -> None:
        with contextlib.suppress(StokerError):  # the main thread joins again, and raises it
            action()
        ended.set()
        stop.ask()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ended


def _start_log(values: Values) -> LogOptions:
    """Write the log to standard error, first the variables STOKER_* that have no effect."""
    fields = values.build(LogFields)
    log = LogOptions(fields.log_level, fields.log_format)
    log_to_stderr(log)
    for warning in values.warnings:
        logger.warning(warning)
    return log
