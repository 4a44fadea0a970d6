"""A worker in a child process, as its parent sees it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

import msgspec

from stoker.dataset.streams.calls.call_ranges import NO_DIGEST, UNPLACED, CallRange
from stoker.dataset.streams.calls.call_recorder import RecordedCall
from stoker.errors import StokerError, UnavailableError, from_record
from stoker.service.config import WorkerConfig
from stoker.service.keys import WorkerIdentity
from stoker.service.process.logs import LogOptions
from stoker.service.worker.processes.activity import ChildActivity
from stoker.service.worker.processes.child import ChildStart, Serving
from stoker.service.worker.processes.environment import worker_environment
from stoker.service.worker.processes.forked_process import UNKNOWN_STATUS, ForkServer
from stoker.service.worker.processes.output_pump import OutputPump
from stoker.service.worker.processes.shared_page import SharedPage
from stoker.wire.transports.forking import close_in_child

CHILD_COMMAND = (
    sys.executable,
    "-P",
    "-X",
    "faulthandler",
    "-m",
    "stoker.service.worker.processes.child",
)
"""`-P` keeps the working directory off the child's path: a `types.py` there is not imported."""

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""

_REQUESTS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals by which people and systems ask a process to end."""

_KNOWN_CAUSES = {
    signal.SIGKILL: "out of memory, or kill -9",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGBUS: "a crash in native code, or a full disk under a memory map",
    signal.SIGABRT: "native code aborted",
    signal.SIGILL: "native code built for another processor",
}


@dataclass(frozen=True)
class Exit:
    """Exit of a child process; ``str(exit)`` describes it.

    Attributes:
        returncode: as in `subprocess`; negative for a signal, and `UNKNOWN_STATUS`.
        last_lines: what it wrote to stderr at its end (`LastWords`).

    Example:
        >>> str(Exit(-9))
        'was killed by SIGKILL (out of memory, or kill -9)'
        >>> str(Exit(1, ("Traceback ...", "ValueError: no")))
        'ended with exit code 1: Traceback ... | ValueError: no'
    """

    returncode: int
    last_lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = f": {' | '.join(self.last_lines)}" if self.last_lines else ""
        if self.returncode == UNKNOWN_STATUS:
            return f"ended, exit status unknown (the process that forked it was killed){words}"
        if self.returncode >= 0:
            return f"ended with exit code {self.returncode}{words}"
        try:
            number = signal.Signals(-self.returncode)
        except ValueError:
            return f"was killed by signal {-self.returncode}{words}"
        cause = f" ({_KNOWN_CAUSES[number]})" if number in _KNOWN_CAUSES else ""
        return f"was killed by {number.name}{cause}{words}"


@dataclass(frozen=True)
class LostCalls:
    """Calls of user functions in flight when a process died.

    Attributes:
        by_task: those of each task that have a position.
        alone: the digest of the element of the only call, if that ran alone.
    """

    by_task: dict[int, list[CallRange]] = field(default_factory=dict)
    alone: int = NO_DIGEST

    @classmethod
    def of(cls, recorded: Sequence[RecordedCall]) -> "LostCalls":
        """Return the calls in flight by the record of a dead process."""
        by_task: dict[int, list[CallRange]] = {}
        for each in recorded:
            if each.calls.stream != UNPLACED:
                by_task.setdefault(each.task_id, []).append(each.calls)
        return cls(by_task, recorded[0].digest if len(recorded) == 1 else NO_DIGEST)


class WorkerProcess:
    """One worker in a child process, which dies with this process, even if this one is killed.

    The constructor starts the process; `wait_serving` returns its address once it accepts tasks.
    `stop` must be called at the end, even if the child has died.

    Args:
        config: the worker's configuration; sent to the child as JSON.
        log: level and format of the child's log, on its standard error. Lines of JSON also carry
            what else it writes to its standard error and output.
        command: the child's command line; the descriptors of its end of the lifeline and of the
            `SharedPage` are appended.
        forks: forks the child, where the system can; otherwise `command` is executed.

    Attributes:
        pid: process id of the child.
    """

    def __init__(
        self,
        config: WorkerConfig,
        log: LogOptions = LogOptions(),  # noqa: B008 - it is frozen
        *,
        command: Sequence[str] = CHILD_COMMAND,
        forks: ForkServer | None = None,
    ) -> None:
        as_json = log.format == "json"
        # The child's ends are closed here after its start, or its death would not be seen.
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            self._page = SharedPage.create()
            ours.callback(self._page.close)
            self._lifeline, end = socket.socketpair()
            ours.enter_context(self._lifeline)
            lifeline = theirs.enter_context(end).fileno()
            errors, stderr = _pipe(ours, theirs)
            output, stdout = _pipe(ours, theirs) if as_json else (None, None)
            page = self._page.descriptor
            forked = forks and forks.fork(lifeline, page, 1 if stdout is None else stdout, stderr)
            self._process = forked or subprocess.Popen(
                [*command, str(lifeline), str(page)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=worker_environment(),
                pass_fds=[lifeline, page],
                # Ctrl-C in a terminal reaches the parent alone, which then stops its children.
                process_group=0,
            )
            ours.pop_all()
        close_in_child(self._lifeline)  # a forked process must not keep the child alive
        self._activity = ChildActivity(self._process.pid, lambda: self._page.progress)
        # No `makefile`: a forked process would close the socket only with that, under its lock.
        self._received = b""
        self.pid = self._process.pid
        self._stderr = OutputPump(errors, 2, self.pid, as_json=as_json)
        self._stdout = OutputPump(output, 1, self.pid, as_json=as_json) if output else None
        start = ChildStart(config, log, list(worker_environment().items()) if forked else None)
        try:
            self._lifeline.sendall(msgspec.json.encode(start) + b"\n")
        except ConnectionError:
            return  # it died; `wait_serving` and `wait` raise or return the reason

    @property
    def identity(self) -> WorkerIdentity | None:
        """The identity of the worker at the dispatcher; ``None`` before it is registered."""
        return self._page.identity

    def active_within(self, seconds: float) -> bool:
        """Return whether it is not stopped and did anything in the past `seconds`.

        Call it several times in `seconds`; see `ChildActivity.within`.
        """
        return self.alive and self._activity.within(seconds)

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    @property
    def exited_cleanly(self) -> bool:
        """True if it has exited with status 0."""
        return self._process.poll() == 0

    def wait_serving(self, timeout: float | None = 60.0) -> str:
        """Wait until the worker accepts tasks and return its address.

        Raises:
            StokerError: the error that the child reported instead.
            UnavailableError: if it died, or sent nothing within `timeout` seconds.
        """
        self._lifeline.settimeout(timeout)
        try:
            while b"\n" not in self._received:
                data = self._lifeline.recv(65536)
                if not data:
                    raise ConnectionResetError
                self._received += data
        except TimeoutError:
            raise UnavailableError(
                f"worker process {self.pid} did not begin to serve within {timeout:g} s"
            ) from None
        except ConnectionResetError:
            raise UnavailableError(f"worker process {self.pid} {self.wait()}") from None
        line, _, self._received = self._received.partition(b"\n")
        answer = msgspec.json.decode(line, type=Serving)
        if answer.error is not None:
            raise from_record(answer.error)
        return answer.address

    def refusal(self) -> StokerError | None:
        """Return the error with which the dispatcher refused a worker that has exited, if it did.

        Call it after `wait` and before `stop`.
        """
        errors = [line.error for line in self._last_lines() if line.error is not None]
        return from_record(errors[0]) if errors else None

    def was_drained(self) -> bool:
        """Return whether an operator had asked a worker to drain that has exited.

        Call it after `wait` and before `stop`.
        """
        return any(line.draining for line in self._last_lines())

    def _last_lines(self) -> list[Serving]:
        """Return the lines that the child has sent after the first."""
        with contextlib.suppress(OSError):  # nothing more, or `stop` has closed it
            # Not until the end of the stream: a process that the child has forked may have it open.
            self._lifeline.setblocking(False)
            while data := self._lifeline.recv(65536):
                self._received += data
        lines = self._received.split(b"\n")[:-1]
        return [msgspec.json.decode(line, type=Serving) for line in lines]

    def wait(self, timeout: float | None = None) -> Exit:
        """Wait until the process ends and return its exit.

        Raises:
            TimeoutError: if it still runs after `timeout` seconds.
        """
        try:
            returncode = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"worker process {self.pid} runs after {timeout:g} s") from None
        written = self._stderr.finish()
        # A process that ends well, or is killed, does not write why.
        return Exit(returncode, () if returncode in (0, -signal.SIGKILL) else written)

    def lost_calls(self) -> LostCalls:
        """Return the calls of user functions that may have ended the process.

        Call it after `wait` and before `stop`. There are none if the process was asked to end.
        """
        returncode = self._process.returncode
        if returncode is None or -returncode in _REQUESTS:
            return LostCalls()
        return LostCalls.of(self._page.calls)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL, as the kernel does when memory runs out."""
        self._process.kill()

    def stop(self, grace: float = GRACE) -> Exit:
        """Stop the process, with SIGKILL after `grace` seconds, and release its resources here."""
        self.terminate()
        try:
            ended = self.wait(grace)
        except TimeoutError:
            self.kill()
            ended = self.wait()
        self._stderr.finish()
        if self._stdout is not None:
            self._stdout.finish()
        self._lifeline.close()
        self._page.close()
        return ended


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[IO[bytes], int]:
    """Return the ends of a new pipe, to read here and to write in a child."""
    reader, writer = os.pipe()
    theirs.callback(os.close, writer)
    return ours.enter_context(os.fdopen(reader, "rb", buffering=0)), writer
