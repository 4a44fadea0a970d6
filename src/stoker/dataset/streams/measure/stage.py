"""One stage of an open pipeline, and the streams that were opened of it."""

from typing import Any, Protocol

from stoker.dataset.streams.measure.gauge import Gauge
from stoker.dataset.streams.measure.stage_report import StageReport
from stoker.dataset.streams.measure.totals import Totals
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work


class StageNode(Protocol):
    """The part of a `Node` that describes a stage."""

    @property
    def stage_kind(self) -> str: ...
    @property
    def site(self) -> str: ...
    @property
    def inputs(self) -> tuple[Any, ...]: ...
    @property
    def forwards_elements(self) -> bool: ...
    def function_name(self) -> str: ...
    def inputs_per_element(self) -> int | None: ...


class Stage:
    """One node and the streams that were opened of it; guarded by the lock of `Recording`.

    Args:
        number: as in `StageReport`.
        node: describes the stage.
        inputs: the numbers of the stages that it reads.

    Attributes:
        number: as in `StageReport`.
        inputs: the numbers of the stages that it reads.
        per_element: the elements of its input per element of its own, if that is constant.
        opened: the number of streams of its own.
        works: its streams measure their function or threads themselves.
    """

    def __init__(self, number: int, node: StageNode, inputs: list[int]) -> None:
        self.number = number
        self._kind = node.stage_kind
        self._site = node.site
        self._function = node.function_name()
        self.inputs = inputs
        self.per_element = 1 if node.forwards_elements else node.inputs_per_element()
        self.opened = 0
        self.works = False
        self._work = Work()
        self._totals = Totals()
        self._gauges: dict[Gauge, None] = {}

    def watch(self, gauge: Gauge, stream: Stream) -> None:
        """Add the measurements of a stream that was just opened."""
        self.opened += 1
        self.works = self.works or stream.work is not None
        self._gauges[gauge] = None

    def close(self, gauge: Gauge) -> None:
        """Keep the sums of a stream that is closed."""
        if gauge in self._gauges:
            del self._gauges[gauge]
            gauge.add_to(self._totals, self._work)

    def forget(self) -> None:
        """Drop the sums of calls until now."""
        self._totals = Totals()
        for gauge in list(self._gauges):
            gauge.forget()

    def report(self) -> tuple[StageReport, Work]:
        """Return the measurements of all its streams, and the sum of their own."""
        totals, work = Totals(), Work()
        totals.add(self._totals)
        work.add(self._work)
        # A collection of garbage in this loop may call `close`, in the same thread.
        for gauge in list(self._gauges):
            gauge.add_to(totals, work)
            if gauge.lost:
                self.close(gauge)
        durations = work.durations if self.works and work.threads else totals.durations
        samples = totals.occupancy_samples
        report = StageReport(
            number=self.number,
            kind=self._kind,
            site=self._site,
            function=self._function,
            elements=totals.elements,
            bytes=round(totals.elements * totals.sized_bytes / max(1, totals.sized)),
            get_wait=totals.seconds,
            put_wait=work.put_wait,
            occupancy=totals.occupancy / max(1, samples) if work.threads else None,
            parallel=max(1, work.threads),
            p50=durations.quantile(0.5),
            p99=durations.quantile(0.99),
            cpu=_fraction_on_core(totals, work),
            estimated=totals.sampled,
        )
        return report, work


def _fraction_on_core(totals: Totals, work: Work) -> float | None:
    if work.sampled:
        return min(1.0, work.on_core / work.sampled)
    return min(1.0, totals.on_core / totals.judged) if totals.judged and not work.threads else None
