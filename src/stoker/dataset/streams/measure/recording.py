"""Measurements of the stages of an open pipeline, and of the streams that were opened of them."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from stoker.dataset.streams.measure.bottleneck import Bottleneck, Pass
from stoker.dataset.streams.measure.sampling import Gauge, Totals
from stoker.dataset.streams.measure.stage_report import FIRST_NESTED, StageReport
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.tree.reachable import reachable

# To measure a dataset costs about 10 us, so that this is 0.5 %.
_SECONDS_PER_DATASET = 2e-3

# Each of the first ones is measured.
_FIRST_DATASETS = 8

# Re-entrant, because a collection of garbage may end streams anywhere. One for all pipelines, so
# that a forked child can replace it: a thread of the parent may have held it.
_lock = threading.RLock()


def _replace_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_replace_lock)


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


class Service(Protocol):
    """The measurements of a stage that reads a service."""

    def bottleneck(self, read: Pass) -> Bottleneck | None:
        """Return the bottleneck of the service, given the times of the consumer."""

    def stages(self) -> list[StageReport]:
        """Return the stages on workers, numbered by their positions in the tree's wire form."""

    def tasks(self) -> list[dict[str, Any]]:
        """Return the tasks, for `Iterator.stats`."""

    def follow(self, before: Any) -> None:
        """Continue after another service of the same stage, whose stream was opened before."""


class Stage:
    """One node and the streams that were opened of it; guarded by `_lock`.

    Args:
        number: as in `StageReport`.
        node: describes the stage.
        inputs: the numbers of the stages that it reads.

    Attributes:
        inputs: the numbers of the stages that it reads.
        per_element: the elements of its input per element of its own, if that is constant.
        opened: the number of streams of its own.
        totals: the sums of streams that exist no more.
    """

    def __init__(self, number: int, node: StageNode, inputs: list[int]) -> None:
        self._described = StageReport(number, node.stage_kind, node.site, node.function_name())
        self.inputs = inputs
        self.per_element = 1 if node.forwards_elements else node.inputs_per_element()
        self.opened = 0
        self.totals = Totals()
        self._gauges: dict[Gauge, None] = {}

    def watch(self, stream: Stream, weight: int) -> None:
        """Measure a stream that was just opened and counts for `weight` streams."""
        self.opened += 1
        self._gauges[Gauge(stream, weight, self._end)] = None

    def forget(self) -> None:
        """Drop the sums of calls until now, which only skipped elements."""
        self.totals = Totals(own=self.totals.own)
        for gauge in list(self._gauges):
            gauge.forget()

    def report(self) -> tuple[StageReport, Work | None]:
        """Return the measurements of all streams, and the sum of their own if they have any."""
        totals = Totals()
        totals.add(self.totals)
        # A collection of garbage in this loop may call `_end`, in the same thread.
        for gauge in list(self._gauges):
            gauge.add_to(totals)
        calls, work, samples = totals.calls, totals.own or Work(), totals.occupancy_samples
        durations = work.durations if work.threads else calls.durations
        timed = work if work.sampled or work.threads else calls
        report = msgspec.structs.replace(
            self._described,
            elements=totals.elements,
            bytes=round(totals.elements * totals.sized_bytes / max(1, totals.sized)),
            get_wait=calls.busy,
            put_wait=work.put_wait.seconds(),
            occupancy=totals.occupancy / max(1, samples) if work.threads else None,
            parallel=max(1, work.threads),
            p50=durations.quantile(0.5),
            p99=durations.quantile(0.99),
            cpu=min(1.0, timed.on_core / timed.sampled) if timed.sampled else None,
            estimated=totals.estimated,
        )
        return report, totals.own

    def _end(self, gauge: Gauge) -> None:
        """Keep the sums of a stream that exists no more."""
        with _lock:
            if gauge in self._gauges:
                del self._gauges[gauge]
                gauge.add_to(self.totals)


class Recording:
    """The stages of a pipeline that is opened for one epoch, and measurements of them.

    Attributes:
        stages: by their numbers.
        nested: the numbers of stages in datasets that functions returned, by the number of the
            stage with the function, the number in the dataset, kind and site.
        services: for stages that read a service, by number, what the service measures. Of several
            streams of one stage the latest counts.
        judge: returns what limits the reader of the pipeline; None if nobody measures it.
    """

    def __init__(self) -> None:
        self.stages: dict[int, Stage] = {}
        self.nested: dict[tuple[int, int, str, str], int] = {}
        self.services: dict[int, Service] = {}
        self.judge: Callable[[], Bottleneck | None] = lambda: None

    def forget(self) -> None:
        """Drop the measurements until now: the calls only skipped elements."""
        with _lock:
            for stage in list(self.stages.values()):
                stage.forget()

    def reports(self, elements: int | None = None) -> list[StageReport]:
        """Return the measurements of the stages until now, in the order of their numbers.

        Args:
            elements: the elements that were read; None if they are not known.
        """
        with _lock:
            stages = dict(self.stages)
            found = [stages[number].report() for number in sorted(stages) if stages[number].opened]
        reports = {report.number: report for report, _ in found}
        for number, report in reports.items():
            report.inputs = list(dict.fromkeys(_measured_inputs(stages[number], stages)))
        for report, own in found:
            limit = own.busy if own is not None and own.includes_inputs else report.get_wait
            _limit_nested(report, reports, limit)
        # A dataset that several stages read counts for each of them with its part.
        readers = Counter(number for report in reports.values() for number in report.inputs)
        for report, own in found:
            report.busy = report.get_wait if own is None else own.busy
            if own is None or own.includes_inputs:
                # The datasets that a function returned are read by the threads of its stage, the
                # other inputs by a thread that reads ahead.
                least = 0 if own is None else FIRST_NESTED
                inputs = [number for number in report.inputs if number >= least]
                waits = sum(reports[number].get_wait / readers[number] for number in inputs)
                report.busy = max(0.0, report.busy - waits)
        if elements is not None and reports:
            _count_estimated(stages, reports, elements)
        return list(reports.values())


def _count_estimated(
    stages: Mapping[int, Stage], reports: Mapping[int, StageReport], read: int
) -> None:
    """Replace estimated numbers of elements where they follow from the `read` ones of the root."""
    pending = [(number, read) for number in reports if number < FIRST_NESTED][-1:]
    while pending:
        number, count = pending.pop()
        report = reports[number]
        if report.estimated:
            report.bytes = round(report.bytes * count / max(1, report.elements))
            report.elements, report.counted = count, True
        nested = [each for each in report.inputs if each >= FIRST_NESTED > number]
        if len(nested) == 1:
            pending.append((nested[0], report.elements))
        ratio = stages[number].per_element
        if ratio is not None and len(report.inputs) == 1:
            pending.append((report.inputs[0], ratio * report.elements))


def _limit_nested(outer: StageReport, reports: Mapping[int, StageReport], limit: float) -> None:
    """Reduce the times of the datasets of a function to those in which their stage read them.

    A slow dataset may count for many that were fast.
    """
    roots = [number for number in outer.inputs if number >= FIRST_NESTED > outer.number]
    total = sum(reports[number].get_wait for number in roots)
    if total > limit:
        for number in reachable(roots, lambda number: reports[number].inputs):
            reports[number].get_wait *= limit / total


def _measured_inputs(stage: Stage, stages: Mapping[int, Stage]) -> Iterator[int]:
    """Yield the inputs of a stage, and for those without a stream of their own their inputs."""
    for number in stage.inputs:
        found = stages.get(number)
        if found is not None and found.opened:
            yield number
        elif found is not None:
            yield from _measured_inputs(found, stages)


@dataclass(frozen=True)
class Meters:
    """Adds the streams of one tree to the recording of their pipeline.

    A node that is opened several times, as below `repeat`, is one stage. The nodes of a dataset
    that a user function returns are stages, too, the same ones for each call.

    Attributes:
        recording: of the pipeline.
        outer: the number of the stage whose function returned the tree; None without one.
        weight: the number of streams that each stream counts for; 0 measures none.
    """

    recording: Recording = field(default_factory=Recording)
    outer: int | None = None
    weight: int = 1

    def nested(self, node: StageNode, numbers: Mapping[Any, int]) -> "Meters":
        """Return the meters of the datasets that the function of a node returns.

        Args:
            node: the node of the function.
            numbers: the numbers of the nodes in its tree, here and below.
        """
        return replace(self, outer=self._number(node, numbers))

    def weighted(self, weight: int) -> "Meters":
        """Return meters that multiply all that they measure by a number."""
        return replace(self, weight=self.weight * weight)

    def watch(self, node: StageNode, numbers: Mapping[Any, int], stream: Stream) -> None:
        """Measure a stream of a node that was just opened, unless it is that of its input."""
        if not self.weight or node not in numbers:  # made by a node for itself
            return
        stages = self.recording.stages
        number = self._number(node, numbers)
        with _lock:
            stage = stages.get(number)
            if stage is None:
                inputs = [self._number(each, numbers) for each in node.inputs if each in numbers]
                stage = stages[number] = Stage(number, node, inputs)
            # A node that adds nothing, such as `prefetch(0)`, returns the stream of its input.
            if stream.gauge is None:
                stage.watch(stream, self.weight)

    def join(self, root: StageNode, numbers: Mapping[Any, int]) -> None:
        """Note that a dataset of this root, which was opened, is an input of its outer stage."""
        if self.weight and self.outer is not None and root in numbers:
            number = self._number(root, numbers)
            with _lock:
                stage = self.recording.stages.get(self.outer)
                if stage is not None and number not in stage.inputs:
                    stage.inputs.append(number)

    def add_service(self, node: StageNode, numbers: Mapping[Any, int], service: Service) -> None:
        """Register what the service measures that a node reads."""
        if node in numbers:
            number = self._number(node, numbers)
            with _lock:
                before = self.recording.services.get(number)
                self.recording.services[number] = service
            if before is not None:
                service.follow(before)

    def _number(self, node: StageNode, numbers: Mapping[Any, int]) -> int:
        """Return the number of a stage, which those of one nested node and site have in common."""
        if self.outer is None:
            return numbers[node]
        key = (self.outer, numbers[node], node.stage_kind, node.site)
        with _lock:
            known = self.recording.nested
            return known.setdefault(key, FIRST_NESTED + len(known))


class OpenedSampler:
    """Selects datasets to measure, of many that are opened one after the other.

    A selected dataset counts for those before it that were not measured.

    Args:
        meters: of the datasets.
    """

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._unmeasured = meters.weighted(0)
        self._opened = 0
        self._skipped = 0
        self._due = 0.0

    def next(self) -> Meters:
        """Return the meters of the next dataset."""
        now = time.perf_counter()
        self._skipped += 1
        if now < self._due:
            return self._unmeasured
        self._opened += self._skipped
        if self._opened >= _FIRST_DATASETS:
            self._due = now + _SECONDS_PER_DATASET
        weight, self._skipped = self._skipped, 0
        return self._meters if weight == 1 else self._meters.weighted(weight)
