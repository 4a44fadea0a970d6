"""Times of one client and its tasks: the input of `service_bottleneck.py`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.dataset.streams.measure.bottleneck import Bottleneck, Pass, waited_text
from stoker.service.client.measure.task_reading import TaskReading
from stoker.service.process.host import HostLoad


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One client since its first read.

    Attributes:
        seconds: the time since then, or until the end.
        waited: the seconds in which the reader waited for elements.
        tasks: all tasks of the client.
        in_turns: they are read in turns, one element at a time (a coordinated read).
        max_outstanding_requests: as in `distribute`.
        assigns_splits: the tasks share the splits of the sources.
        by_position: workers compute what they are asked for (a deterministic epoch).
        read: the times of the consumer of the pipeline, if known; `waited` is the time of the
            thread that reads the service, which may be that of a ``prefetch``.
        load: of the reader's machine.
    """

    seconds: float
    waited: float
    tasks: Sequence[TaskReading] = ()
    in_turns: bool = False
    max_outstanding_requests: int | None = None
    assigns_splits: bool = False
    by_position: bool = False
    read: Pass | None = None
    load: HostLoad = field(default_factory=HostLoad)

    @property
    def own_read(self) -> Pass:
        """The times of the thread that reads the service."""
        return Pass(self.elements, self.seconds, self.waited)

    @property
    def waited_text(self) -> str:
        """The time that the trainer waited, as a clause."""
        return waited_text(self.read or self.own_read)

    def limited_by(
        self, kind: str, subject: str, evidence: str, remedy: str, site: str = "", worker: str = ""
    ) -> Bottleneck:
        """Return the bottleneck of this kind, with a sentence of the clauses."""
        sentence = f"{subject} limits training: {self.waited_text}, {evidence}; {remedy}."
        return Bottleneck(kind, sentence, site=site, worker=worker)

    @property
    def elements(self) -> int:
        """The number of elements received."""
        return sum(task.elements for task in self.tasks)

    @property
    def bytes(self) -> int:
        """About how many bytes they take."""
        return sum(task.bytes for task in self.tasks)


class TrainerWait:
    """The seconds for which the trainer has waited, summed over periods.

    The thread that reads the service may be another one, such as that of a ``prefetch``. The times
    of the trainer are estimated where its reads are fast, so that their total may fall.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._by_trainer = 0.0
        self._by_reader = 0.0

    def until(self, by_reader: float, read: Pass | None, *, blocked: bool) -> float:
        """Return the total, which never falls, with that of the period since the last call.

        Args:
            by_reader: the seconds for which the thread that reads the service has waited.
            read: the times of the trainer; ``None`` if they are not known.
            blocked: the reading thread has waited for long, so that the trainer waits, although
                that read may be one that is not measured.
        """
        waited = by_reader - self._by_reader
        self._by_reader = by_reader
        if read is not None:
            # A read that blocks may be none of the sampled reads, whose total then stands still.
            waited = max(read.waited - self._by_trainer, waited if blocked else 0.0)
            self._by_trainer = read.waited
        self._seconds += max(0.0, waited)
        return self._seconds
