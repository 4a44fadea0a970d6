"""Find what limits the rate of an iterator, from the measurements of its stages."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stoker.dataset.reports.advice import advice
from stoker.dataset.reports.slow_stage import SlowStage, find_slow_stage
from stoker.dataset.streams.measure.stage_report import StageReport

LEAST_SECONDS = 0.2
"""Shorter passes are dominated by their first elements: threads start, buffers fill."""

_LEAST_ELEMENTS = 5
_LONG_SECONDS = 5.0  # an element that takes longer is slow by itself

# A trainer that waits for less than this fraction of its time would gain little from a faster
# pipeline.
TRAINER_BOUND = 0.1


class Pass(NamedTuple):
    """Times of one reading of a dataset.

    Attributes:
        elements: the elements that the consumer got.
        elapsed: seconds since the consumer first asked for an element.
        waited: the seconds of these in which it waited for elements.
    """

    elements: int
    elapsed: float
    waited: float

    @property
    def waiting(self) -> float:
        """The fraction of the time in which the consumer waited."""
        return min(1.0, self.waited / self.elapsed) if self.elapsed > 0 else 0.0


class Bottleneck(msgspec.Struct, frozen=True):
    """The limit of the rate of an iterator.

    Attributes:
        kind: "trainer", "worker", "source", "network", "splits", "straggler", "machine" (the
            processors of the trainer's), "pipeline" (a stage of this process) or "unknown".
        sentence: the kind with its evidence and advice, for users.
        stage: the number of the stage that limits; None if none does.
        site: the line of the user's program that built it.
        worker: the address of the worker where it runs; "" in this process.
        read: the times of the consumer; None if they are not known.
    """

    kind: str
    sentence: str
    stage: int | None = None
    site: str = ""
    worker: str = ""
    read: Pass | None = None


AskService = Callable[[Pass], Bottleneck | None]
"""Return the bottleneck of a service, given the times of the consumer; None if it is not known."""


def find_bottleneck(
    read: Pass,
    stages: Sequence[StageReport],
    services: Mapping[int, AskService] = {},
) -> Bottleneck:
    """Return what limits a consumer.

    Args:
        read: the times of the consumer.
        stages: of the pipeline in the consumer's process.
        services: for stages that read a service, by number, their own bottlenecks.
    """
    found = consumer_bottleneck(read) or _find_in_pipeline(read, stages, services)
    return msgspec.structs.replace(found, read=read)


def _find_in_pipeline(
    read: Pass, stages: Sequence[StageReport], services: Mapping[int, AskService]
) -> Bottleneck:
    """Return what limits a consumer that waits."""
    slow = find_slow_stage(stages, read.elapsed)
    waited = waited_text(read)
    if slow is None:
        return Bottleneck(
            "unknown",
            f"The pipeline limits training: {waited}, but too little of that time was measured "
            "to name a stage.",
        )
    report = slow.report
    # A service knows what its workers, tasks and connections do; here only the wait is known.
    ask = services.get(report.number)
    if ask is not None and (found := ask(read)) is not None:
        return found
    kind = "source" if slow.is_source else "pipeline"
    sentence = f"The {kind} limits training: {waited}, and {evidence_text(slow)}; {advice(slow)}."
    if report.kind == "distribute":
        kind = "unknown"
        sentence = (
            f"The service limits training: {waited}, mostly in {report.label}; its workers have "
            "not reported yet what they do."
        )
    return Bottleneck(kind, sentence, report.number, report.site)


def consumer_bottleneck(read: Pass) -> Bottleneck | None:
    """Return that too little was read, or that the consumer is the limit; otherwise None."""
    few = read.elements < _LEAST_ELEMENTS and read.elapsed < _LONG_SECONDS
    if read.elapsed < LEAST_SECONDS or few:
        return Bottleneck(
            "unknown",
            f"Too little was read to name a bottleneck: {read.elements:,} elements in "
            f"{read.elapsed:.2f} s.",
        )
    if read.waiting < TRAINER_BOUND:
        return Bottleneck(
            "trainer",
            f"The trainer limits training: it waited for elements for only {read.waiting:.0%} of "
            f"{seconds_text(read.elapsed)}, so a faster pipeline would hardly help.",
        )
    return None


def waited_text(read: Pass) -> str:
    """Return how long the consumer waited, as a clause."""
    return f"the trainer waited for elements for {read.waiting:.0%} of {seconds_text(read.elapsed)}"


def seconds_text(seconds: float) -> str:
    """Return a duration with a unit and two or three digits, such as "4.1 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.{1 if seconds < 1000 * scale else 0}f} {unit}"
    return f"{seconds * 1e6:.0f} µs" if not 0 < seconds < 1e-6 else f"{seconds * 1e9:.0f} ns"


def evidence_text(slow: SlowStage) -> str:
    """Return the measurements that show that a stage limits its pipeline."""
    report = slow.report
    each = ""
    if report.p99 > 0:
        p50, p99 = seconds_text(report.p50), seconds_text(report.p99)
        each = f" (P50 {p50}, P99 {p99} per element)"
    if slow.saturated:
        threads = f"all {report.parallel} threads" if report.parallel > 1 else "the only thread"
        were = f"{report.label} {'were' if report.parallel > 1 else 'was'}"
        return f"{threads} of {were} busy for {slow.share:.0%} of the time{each}"
    return f"{slow.share:.0%} of the pipeline's time was in {report.label}{each}"
