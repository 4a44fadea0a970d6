"""Servers in the foreground, until SIGTERM or Ctrl-C."""

import contextlib
import logging
import threading

import typer

from stoker.cli.commands import fail, refuse
from stoker.cli.options.options import LogFields, ProcessFields
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
    """Run a dispatcher until it is asked to stop, or fails; print its address once it serves."""
    config = values.build(DispatcherConfig, fault_tolerant_mode="work_dir" in values.given)
    as_json = _start_log(values).format == "json"
    with StopRequest() as stop:
        try:
            server = DispatchServer(config)
        except (StokerError, ValueError, OSError) as error:
            if isinstance(error, _WRONG_WORK_DIR):
                refuse(values.with_origins(str(error)), as_json=as_json)
            fail(str(error), as_json=as_json)
        where = " (all interfaces)" if is_unspecified(config.host) else ""
        line = f"dispatcher serves at {server.target}{where}"
        typer.echo(json_line(logging.INFO, logger.name, line) if as_json else line)
        waiting = threading.Thread(target=_ask_when_stopped, args=(server, stop))
        waiting.start()
        try:
            stop.wait()
        finally:
            server.stop()
            waiting.join()
    if isinstance(server.failure, DataLossError):
        refuse(str(server.failure), as_json=as_json)
    if server.failure is not None:
        fail(str(server.failure), as_json=as_json)


def run_worker(values: Values) -> None:
    """Run worker processes until asked to stop, then let trainers read until the grace ends."""
    config = values.build(WorkerConfig)
    processes = values.build(ProcessFields).processes
    grace = config.shutdown_quiet_period_ms / 1000
    log = _start_log(values)
    as_json = log.format == "json"
    with StopRequest() as stop:
        try:
            supervisor = Supervisor(config, processes, log)
        except InvalidArgumentError as error:
            refuse(values.with_origins(str(error)), as_json=as_json)
        except (StokerError, ValueError) as error:
            fail(str(error), as_json=as_json)
        dispatcher_address = parse_service(config.dispatcher_address)[1]
        number = plural(processes, "worker process", "worker processes")
        logger.info("starting %s of the dispatcher at %s", number, dispatcher_address)
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
        fail(str(error), as_json=as_json)


def _start_log(values: Values) -> LogOptions:
    """Write the log to standard error, first the variables STOKER_* that have no effect."""
    fields = values.build(LogFields)
    log = LogOptions(fields.log_level, fields.log_format)
    log_to_stderr(log)
    for warning in values.warnings:
        logger.warning(warning)
    return log


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
