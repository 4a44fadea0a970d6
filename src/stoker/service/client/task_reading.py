"""Amounts received of one task, and the evidence of its worker."""

from dataclasses import dataclass

from stoker.service.task_evidence import TaskEvidence, decode
from stoker.wire import frames as f


@dataclass
class TaskReading:
    """Amounts that a client has received of one task, and the evidence of its worker.

    Attributes:
        protocol: the transport of the connection, such as "tcp".
        elements: the number of elements received.
        bytes: about how many bytes they take.
        received_at: the time of the last frame; ``None`` if there was none.
        ended_at: the time of `End`; ``None`` before.
        evidence: where the task's time goes, since this client reads it.
        chunks: the number of chunks that the task computed since then.
        backlogged: those that came while earlier elements waited in the worker for this client.
    """

    protocol: str = ""
    elements: int = 0
    bytes: int = 0
    received_at: float | None = None
    ended_at: float | None = None
    evidence: TaskEvidence | None = None
    chunks: int = 0
    backlogged: int = 0
    _before: TaskEvidence | None = None

    def received(self, elements: int, nbytes: int, now: float) -> None:
        """Count a frame."""
        self.elements += elements
        self.bytes += nbytes
        self.received_at, self.ended_at = now, None

    def reported(self, report: f.Report, seconds: float) -> None:
        """Apply a report of the worker, which arrived `seconds` after the client was created."""
        evidence = decode(report.evidence)
        if evidence is None:
            return
        if self._before is None:
            joined = evidence.seconds > seconds + JOINED_SECONDS
            self._before = evidence if joined else TaskEvidence()
        self.evidence = evidence.since(self._before)
        self.chunks, self.backlogged = report.chunks, report.backlogged


JOINED_SECONDS = 2.0
"""Age beyond which a task is older than its client: evidence of the time before does not count."""
