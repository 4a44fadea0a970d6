"""Amounts received of one task, and the evidence of its worker."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from stoker.service.task_evidence import TaskEvidence, decode
from stoker.wire import frames as f

JOINED_SECONDS = 2.0
"""Age from which a task is older than its client's reading of it: evidence of the time before does
not count."""

LEAST_CHUNKS = 5
"""Chunks of which a smaller number says nothing about what waits in a buffer."""


@dataclass
class TaskReading:
    """Amounts that a client has received of one task, and the evidence of its worker.

    Times are totals since the client was created. Those of `while_waiting` are weighted by the
    fraction of each period between two reports in which the reader waited, so that a pause of the
    trainer, in which buffers fill, proves nothing.

    Attributes:
        worker: the worker's address; `TaskCursor.reading_at` sets it and the next two.
        lost: the worker was removed.
        waited_since_end: the seconds that the reader has waited since `End`; ``None`` before it.
        protocol: the transport of the connection, such as "tcp".
        elements: the number of elements received.
        bytes: about how many bytes they take.
        ended_after: the seconds that the reader had waited until `TaskEnd`; ``None`` before it.
        evidence: where the task's time goes, since this client reads it; ``None`` if unknown.
        while_waiting: the same while the reader waited.
        chunks: the number of chunks that the task computed since then.
        backlogged: those that came while earlier elements waited in the worker for this client.
        chunks_while_waiting: `chunks`, weighted as the times of `while_waiting`.
        backlogged_while_waiting: `backlogged`, weighted in the same way.
    """

    worker: str = ""
    lost: bool = False
    waited_since_end: float | None = None
    protocol: str = ""
    elements: int = 0
    bytes: int = 0
    ended_after: float | None = None
    evidence: TaskEvidence | None = None
    while_waiting: TaskEvidence = field(default_factory=TaskEvidence)
    chunks: int = 0
    backlogged: int = 0
    chunks_while_waiting: float = 0.0
    backlogged_while_waiting: float = 0.0
    _latest: TaskEvidence | None = None
    _at: float = 0.0
    _waited: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the task for `Iterator.stats`."""
        evidence = self.evidence or TaskEvidence()
        return {
            "worker": self.worker,
            "protocol": self.protocol,
            "elements": self.elements,
            "bytes": self.bytes,
            "lost": self.lost,
            "ended": self.waited_since_end is not None,
            "seconds": evidence.seconds,
            "computed": evidence.elements,
            "computing": evidence.computing,
            "put_wait": evidence.put_wait,
            "split_wait": evidence.split_wait,
            "occupancy": evidence.occupancy,
            "backlog": self.backlog,
            "stages": [msgspec.structs.asdict(stage) for stage in evidence.stages],
        }

    @property
    def backlog(self) -> float:
        """The fraction of the chunks that are `backlogged`."""
        return self.backlogged / max(1, self.chunks)

    @property
    def backlog_while_waiting(self) -> float:
        """The fraction of the chunks computed while the reader waited; 0 if these are too few."""
        chunks = self.chunks_while_waiting
        return self.backlogged_while_waiting / chunks if chunks >= LEAST_CHUNKS else 0.0

    def join(self, now: float, waited: float) -> None:
        """Note that the client begins to read the task, perhaps again.

        Args:
            now: the time in seconds, on the clock of all calls.
            waited: the seconds in which the reader waited since the client was created.
        """
        self._latest, self._at, self._waited = None, now, waited
        self.chunks = self.backlogged = 0  # the worker counts them for each reader
        self.ended_after = None

    def received(self, elements: int, nbytes: int) -> None:
        """Count a frame."""
        self.elements += elements
        self.bytes += nbytes
        self.ended_after = None

    def reported(self, report: f.Report, now: float, waited: float) -> None:
        """Apply a report of the worker, with the arguments of `join`."""
        evidence = decode(report.evidence)
        if evidence is None:
            return
        # An old task has totals of a time in which this client did not read.
        if self._latest is None:
            older = evidence.seconds > now - self._at + JOINED_SECONDS
            self._latest = evidence if older else TaskEvidence()
        part = evidence.since(self._latest)
        period = now - self._at
        # Reports come twice a second, so that the share of a period is exact enough.
        weight = min(1.0, max(0.0, (waited - self._waited) / period)) if period > 0 else 0.0
        self.evidence = (self.evidence or TaskEvidence()).plus(part, 1.0)
        self.while_waiting = self.while_waiting.plus(part, weight)
        self.chunks_while_waiting += weight * (report.chunks - self.chunks)
        self.backlogged_while_waiting += weight * (report.backlogged - self.backlogged)
        self.chunks, self.backlogged = report.chunks, report.backlogged
        self._latest, self._at, self._waited = evidence, now, waited
