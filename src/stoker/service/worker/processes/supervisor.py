"""Supervisor of worker processes: `stoker worker --processes N`."""

import dataclasses
import logging
import threading
import time
from collections.abc import Sequence

from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.errors import FailedPreconditionError, InvalidArgumentError, StokerError
from stoker.service.config import WorkerConfig
from stoker.service.process.clock import CLOCK, Clock
from stoker.service.process.logs import LogOptions
from stoker.service.process.open_files import raise_open_files_limit
from stoker.service.worker.processes.backoff import Backoff
from stoker.service.worker.processes.forked_process import ForkServer
from stoker.service.worker.processes.process import (
    CHILD_COMMAND,
    GRACE,
    WorkerProcess,
)
from stoker.service.worker.processes.supervisor_session import SupervisorSession

logger = logging.getLogger(__name__)


class Supervisor:
    """Runs `processes` workers in child processes and restarts each that dies.

    It stops all when the configuration is not valid or the dispatcher refuses a worker, since a
    restart would not help. A worker that an operator drains (`stoker drain`) is not restarted;
    after the last one `join` returns. The death of a child is logged in one line. `start` and
    `stop` are idempotent.

    Args:
        config: of every worker; with a port other than 0, worker k listens on ``port + k``.
        processes: number of workers, at least 1.
        command: a child's command line (see `WorkerProcess`); ``None``: children are forked.
        clock: times the delays before restarts, not the session: workers keep real time.

    Raises:
        InvalidArgumentError: if `processes` is less than 1, or there are too few ports.
    """

    def __init__(
        self,
        config: WorkerConfig,
        processes: int = 1,
        log: LogOptions = LogOptions(),  # noqa: B008 - it is frozen
        *,
        command: Sequence[str] | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        if processes < 1:
            raise InvalidArgumentError(f"`processes` must be at least 1, got {processes}")
        if config.port + processes > 65536:
            raise InvalidArgumentError(
                f"`port` must be at most {65536 - processes}, or 0, for {processes} processes "
                f"with a port each, got {config.port}"
            )
        self._configs = [
            # Port 0 is a free port for each.
            dataclasses.replace(config, port=config.port and config.port + number)
            for number in range(processes)
        ]
        self._log = log
        self._command = command or CHILD_COMMAND
        self._forks = None if command else ForkServer()
        self._clock = clock
        self._running: dict[int, WorkerProcess] = {}
        self._addresses: dict[int, str] = {}
        self._failure: StokerError | None = None
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._changed = threading.Condition()
        self._session = SupervisorSession(
            config.dispatcher_address, self._processes, config.peer_timeout_ms / 1000
        )

    def start(self) -> None:
        """Start the processes without waiting for them (see `wait_serving`)."""
        with self._changed:
            if self._threads or self._stopping:
                return
            raise_open_files_limit()  # it has descriptors of each child
            self._threads = [
                threading.Thread(
                    target=self._keep_running, args=(number,), name=f"stoker-supervisor-{number}"
                )
                for number in range(len(self._configs))
            ]
        for thread in self._threads:
            thread.start()
        self._session.start()

    def wait_serving(self, timeout: float = 60.0) -> list[str]:
        """Wait until all workers accept tasks and return their addresses.

        Raises:
            TimeoutError: if one does not within `timeout` seconds.
            StokerError: if a worker can never start.
        """
        with self._changed:
            ready = self._changed.wait_for(
                lambda: self._failure or len(self._addresses) == len(self._configs), timeout
            )
            if self._failure is not None:
                raise self._failure
            if not ready:
                count = len(self._addresses)
                raise TimeoutError(f"{count} of {len(self._configs)} workers serve")
            return [self._addresses[number] for number in range(len(self._configs))]

    @property
    def pids(self) -> list[int]:
        """Process ids of the running children, in the order of worker numbers."""
        with self._changed:
            return [process.pid for _, process in sorted(self._running.items())]

    def join(self) -> None:
        """Wait until the supervisor is stopped, or all workers were drained.

        Raises:
            StokerError: if a worker can never start, or the dispatcher refuses it for a minute, so
                that all were stopped.
        """
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def stop(self, grace: float = GRACE) -> None:
        """Stop all children, with SIGKILL after `grace` seconds.

        A second call, from another thread, sends them another SIGTERM.
        """
        self._terminate_all()
        # Real time, also in tests with a clock: the children are real processes.
        deadline = time.monotonic() + grace
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            for process in self._running.values():
                process.kill()
        for thread in self._threads:
            thread.join()
        if self._forks is not None:
            self._forks.close()
        self._session.stop()

    def _terminate_all(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            for process in self._running.values():
                process.terminate()

    def _processes(self) -> list[WorkerProcess]:
        with self._changed:
            return list(self._running.values())

    def _keep_running(self, number: int) -> None:
        backoff = Backoff()
        while True:
            began = self._clock.now()
            end, calls, drained = self._run_one(number)
            with self._changed:
                if self._stopping:
                    return
                if drained:
                    logger.info("worker %d %s after a drain; it is not restarted", number, end)
                    return
                delay = backoff.after(self._clock.now() - began, calls)
                logger.warning("worker %d %s; starting another in %g s", number, end, delay)
                self._clock.wait_for(self._changed, lambda: self._stopping, delay)

    def _run_one(self, number: int) -> tuple[str, list[CallRange], bool]:
        """Run one process to its end.

        Returns:
            A description of the end, the calls in flight, and whether an operator drained it.
        """
        if self._stopping:
            return "was not started", [], False
        try:
            process = WorkerProcess(
                self._configs[number], self._log, command=self._command, forks=self._forks
            )
        except OSError as error:
            return f"could not be started: {error}", [], False
        with self._changed:
            self._running[number] = process
            if self._stopping:  # since the start of the process, which `stop` did not find
                process.terminate()
        how = self._follow(number, process)
        with self._changed:
            del self._running[number]
            self._addresses.pop(number, None)
            drained = process.was_drained()
            planned = (drained and process.exited_cleanly) or self._stopping
        # Before the process is stopped here: each lost task waits for this message.
        if not planned:
            self._session.report_death(process, how)
        calls = process.lost_calls()
        process.stop()
        in_flight = [each for of_task in calls.by_task.values() for each in of_task]
        return f"(process {process.pid}) {how}", in_flight, drained

    def _follow(self, number: int, process: WorkerProcess) -> str:
        """Wait until the process serves, then until it ends; return a description of the end."""
        try:
            address = process.wait_serving(timeout=None)
        except (InvalidArgumentError, FailedPreconditionError) as error:
            self._give_up(error)
            return str(error)
        except StokerError as error:
            return str(error)
        with self._changed:
            self._addresses[number] = address
            self._changed.notify_all()
        logger.info("worker %d (process %d) serves at %s", number, process.pid, address)
        end = str(process.wait())
        if (refusal := process.refusal()) is not None:
            self._give_up(refusal)
        return end

    def _give_up(self, error: StokerError) -> None:
        """Stop all children: a restart would fail in the same way."""
        with self._changed:
            self._failure = self._failure or error
        self._terminate_all()
