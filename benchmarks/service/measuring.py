"""One measurement: starts fresh processes for servers and trainer, and samples their memory."""

import json
import math
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from harness import environment

from service.processes import UNKNOWN, Memory, Peaks, descendants, wait_until_ended
from service.rows import ROWS, Row, Subject
from service.servers import SERVERS
from service.trainers import Report

_START_SECONDS = 60.0
_READ_SECONDS = 45.0
_END_SECONDS = 5.0


@dataclass(frozen=True)
class Measured(Report):
    """A trainer's report, and the memory of trainer and workers.

    Attributes:
        trainer: peaks of the trainer's process.
        workers: peaks of the workers' processes, added up.
    """

    trainer: Memory = UNKNOWN
    workers: Memory = UNKNOWN

    @property
    def trainer_own(self) -> float:
        """MB of the trainer's process without pages of shared memory; nan if unknown."""
        return self.trainer.own or math.nan


def measure(script: str, name: str, label: str, seconds: float) -> Measured:
    """Run one subject of a row once, in fresh processes; a failure is in the result's `error`.

    Args:
        script: called again for each process, with ``--serve`` and ``--train``.
        name: the row.
        label: the subject.
        seconds: how long to read, before the row's factor.
    """
    row = ROWS[name]
    try:
        # The trainer imports what it needs while the servers start.
        with (
            _started(script, "--train", name, label, str(seconds)) as trainer,
            _served(script, row, row.subject(label)) as served,
        ):
            servers = {"target": served["target"], "processes": served["processes"]}
            groups = {"trainer": [trainer.process.pid], "workers": served["workers"]}
            with Peaks(groups) as peaks:
                answer = trainer.answer(json.dumps(servers), _READ_SECONDS + seconds * row.duration)
    except (OSError, RuntimeError, ValueError) as error:
        return Measured(error=str(error))
    return Measured(**answer, trainer=peaks.of("trainer"), workers=peaks.of("workers"))


class _Child:
    """A process of the same script that answers with one line of JSON."""

    def __init__(self, process: "subprocess.Popen[str]", errors: IO[str]) -> None:
        self.process = process
        self._errors = errors

    def answer(self, request: str | None, seconds: float) -> dict[str, Any]:
        """Send the process a line, if there is one, and return its answer.

        Raises:
            RuntimeError: if it ended, or did not answer within `seconds`.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if request is not None:
            self.process.stdin.write(f"{request}\n")
            self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise RuntimeError(f"no answer within {seconds:g} s")
        line = self.process.stdout.readline()
        if not line:
            self._errors.seek(0)
            last = self._errors.read().strip().splitlines()[-1:]
            raise RuntimeError(f"ended with {self.process.wait()}: {' '.join(last)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def _started(script: str, *words: str) -> Iterator[_Child]:
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, script, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment(),
        ) as process,
    ):
        try:
            yield _Child(process, errors)
        finally:
            offspring = descendants(process.pid)
            process.kill()
            wait_until_ended([process.pid, *offspring], _END_SECONDS)


@contextmanager
def _served(script: str, row: Row, subject: Subject) -> Iterator[dict[str, Any]]:
    if subject.system not in SERVERS or subject.transport == "local":
        yield {"target": "", "workers": [], "processes": []}
        return
    system = "stoker, gRPC" if subject.transport == "grpc" else subject.system
    with _started(script, "--serve", system, str(row.workers)) as server:
        served = server.answer(None, _START_SECONDS)
        yield served | {"processes": list({server.process.pid, *served["workers"]})}
