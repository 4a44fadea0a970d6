"""Measurements of the stages of an open pipeline."""

import copy
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from stoker.dataset.bottleneck import AskService, Bottleneck
from stoker.dataset.streams.gauge import Clock, Gauge, Totals
from stoker.dataset.streams.stage_report import FIRST_NESTED, StageReport
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work

# See `OpenedSampler`.
_SECONDS_PER_DATASET = 2e-3
_MOST_PER_SAMPLE = 64


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


class Meters:
    """The stages of a pipeline that is opened for one epoch, and measurements of them.

    A node that is opened several times, as below `repeat`, is one stage. The nodes of a dataset
    that a user function returns are stages, too, the same ones for each call.

    Attributes:
        clock: of the pipeline.
        services: for stages that read a service, by number, their own bottlenecks.
        remote: for stages that read a service, by number, a function that returns the reports of
            the stages on workers, which are numbered by their positions in the tree's wire form.
        tasks: for stages that read a service, by number, a function that returns its tasks as
            dicts.
        judge: returns what limits the consumer of the pipeline; None if nobody measures it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a stream may be collected while it is locked
        self.clock = Clock()
        self._stages: dict[int, _Stage] = {}
        self._nested_numbers: dict[tuple[int, int, str, str], int] = {}
        self.services: dict[int, AskService] = {}
        self.remote: dict[int, Callable[[], list[StageReport]]] = {}
        self.tasks: dict[int, Callable[[], list[dict[str, Any]]]] = {}
        self.judge: Callable[[], Bottleneck | None] = lambda: None
        self._outer: int | None = None
        self._weight = 1
        self._last: Gauge | None = None

    def nested(self, node: StageNode, numbers: Mapping[Any, int]) -> "Meters":
        """Return the meters of the datasets that a function returns; their stages are added.

        Args:
            node: the node of the function.
            numbers: the numbers of the nodes in its tree.
        """
        meters = copy.copy(self)
        if node in numbers:
            meters._outer = self._number(node, numbers[node])
        return meters

    def weighted(self, weight: int) -> "Meters":
        """Return meters that multiply all that they measure by a number."""
        meters = copy.copy(self)
        meters._weight = self._weight * weight
        return meters

    def watch(self, node: StageNode, numbers: Mapping[Any, int], stream: Stream) -> None:
        """Measure a stream that was just opened, unless it is that of the input of its node.

        Args:
            node: describes the stage.
            numbers: the numbers of the nodes in the tree.
            stream: of the node.
        """
        if node not in numbers:  # made by a node for itself
            return
        with self._lock:
            stage = self._stage(node, numbers)
            if stream.gauge is None:
                forget = partial(self._forget, stage)
                self._last = stage.watch(stream, self.clock, forget, self._weight)

    def add_service(
        self,
        node: StageNode,
        numbers: Mapping[Any, int],
        limit: AskService,
        stages: Callable[[], list[StageReport]],
        tasks: Callable[[], list[dict[str, Any]]],
    ) -> None:
        """Register a stage that reads a service.

        Args:
            node: describes the stage.
            numbers: the numbers of the nodes in the tree.
            limit: as in `services`.
            stages: as in `remote`.
            tasks: as in `tasks`.
        """
        if node in numbers:
            number = self._number(node, numbers[node])
            self.services[number], self.remote[number], self.tasks[number] = limit, stages, tasks

    def end_opening(self) -> None:
        """Note that the stream watched last is the root of the pipeline, if it is not nested."""
        if self._outer is None and self._last is not None:
            self._last.become_root()
            self._last = None

    def stop(self) -> None:
        """Note that the consumer reads no more."""
        if self.clock.stopped is None:
            self.clock.stopped = time.perf_counter()

    def reports(self, elements: int | None = None) -> list[StageReport]:
        """Return the measurements of the stages so far, in the order of their numbers.

        Args:
            elements: the elements that the consumer read; None if they are not known.
        """
        with self._lock:
            stages = dict(self._stages)
            now = self.clock.stopped or self.clock.now
            found = [stages[number].report(now) for number in sorted(stages)]
        reports = [report for report, _ in found if stages[report.number].opened]
        waits = {report.number: report.get_wait for report in reports}
        for report, work in found:
            report.inputs = list(_measured_inputs(stages[report.number], stages))
            if work.includes_inputs:
                nested = sum(waits[i] for i in report.inputs if i >= FIRST_NESTED)
                report.busy = max(0.0, report.busy - nested)
        if elements is not None:
            _count_estimated(stages, reports, elements)
        return reports

    def _stage(self, node: StageNode, numbers: Mapping[Any, int]) -> "_Stage":
        key = self._number(node, numbers[node])
        stage = self._stages.get(key)
        if stage is None:
            inputs = [self._number(i, numbers[i]) for i in node.inputs if i in numbers]
            stage = self._stages[key] = _Stage(key, node, inputs)
            if self._outer is not None:
                self._join(stage)
        return stage

    def _join(self, stage: "_Stage") -> None:
        """Add the root of a dataset that a function returned to the inputs of its node.

        Roots are watched after their inputs, so a stage that another one reads is none.
        """
        outer = self._stages.get(self._outer or 0)
        if outer is not None:
            outer.inputs = [number for number in outer.inputs if number not in stage.inputs]
            outer.inputs.append(stage.number)

    def _forget(self, stage: "_Stage", reference: "weakref.ref[Stream]") -> None:
        with self._lock:
            stage.forget(reference, self.clock.stopped or time.perf_counter())

    def _number(self, node: StageNode, number: int) -> int:
        if self._outer is None:
            return number
        key = (self._outer, number, node.stage_kind, node.site)
        with self._lock:
            return self._nested_numbers.setdefault(key, FIRST_NESTED + len(self._nested_numbers))


class _Stage:
    """One node and the streams that were opened of it; guarded by the lock of its `Meters`.

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
        self._gauges: dict[weakref.ref[Stream], Gauge] = {}

    def watch(
        self, stream: Stream, clock: Clock, forget: Callable[[Any], None], weight: int
    ) -> Gauge:
        """Measure a stream; return its gauge.

        Args:
            stream: was just opened.
            clock: of the pipeline.
            forget: called when the stream exists no more.
            weight: the number of streams for which it is measured.
        """
        self.opened += 1
        self.works = self.works or stream.work is not None
        reference = weakref.ref(stream, forget)
        gauge = self._gauges[reference] = Gauge(stream, reference, clock, weight)
        return gauge

    def forget(self, reference: "weakref.ref[Stream]", now: float) -> None:
        """Keep the sums of a stream that exists no more."""
        self._gauges.pop(reference).add_to(self._totals, self._work, now)

    def report(self, now: float) -> tuple[StageReport, Work]:
        """Return the measurements of all its streams; `busy` may contain that of its inputs."""
        totals, work = Totals(), Work()
        totals.add(self._totals)
        work.add(self._work)
        # A collection of garbage in this loop may call `forget`, in the same thread.
        for gauge in list(self._gauges.values()):
            gauge.add_to(totals, work, now)
        durations = work.durations if self.works and work.threads else totals.durations
        report = StageReport(
            number=self.number,
            kind=self._kind,
            site=self._site,
            function=self._function,
            inputs=list(self.inputs),
            elements=round(totals.elements),
            bytes=round(totals.elements * totals.sized_bytes / max(1, totals.sized)),
            busy=work.busy if self.works else totals.own,
            get_wait=totals.seconds,
            put_wait=work.put_wait,
            occupancy=totals.filled / max(1, totals.looks) if work.threads else None,
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


def _measured_inputs(stage: _Stage, stages: Mapping[int, _Stage]) -> Iterator[int]:
    """Yield the inputs of a stage, and for those without a stream of their own their inputs."""
    for number in stage.inputs:
        found = stages.get(number)
        if found is not None and found.opened:
            yield number
        elif found is not None:
            yield from _measured_inputs(found, stages)


def _count_estimated(stages: Mapping[int, _Stage], reports: list[StageReport], read: int) -> None:
    """Replace estimated numbers of elements where they follow from those of the reader.

    Args:
        stages: all stages.
        reports: of those with streams, in the order of their numbers.
        read: the elements of the root.
    """
    known = {report.number: report for report in reports}
    pending = [number for number in known if number < FIRST_NESTED][-1:]
    counts = dict.fromkeys(pending, read)
    while pending:
        report = known[pending.pop()]
        if report.estimated:
            if report.elements:
                report.bytes = round(report.bytes * counts[report.number] / report.elements)
            report.elements = counts[report.number]
        for number, ratio in _ratios(report, stages):
            counts[number] = ratio * report.elements
            pending.append(number)


def _ratios(report: StageReport, stages: Mapping[int, _Stage]) -> Iterator[tuple[int, int]]:
    """Yield the inputs of which the number of elements follows, with elements per element."""
    for number in report.inputs:
        if number >= FIRST_NESTED > report.number:
            yield number, 1
    ratio = stages[report.number].per_element
    if ratio is not None and len(report.inputs) == 1:
        yield report.inputs[0], ratio


class OpenedSampler:
    """Selects the datasets that are measured, of many that are opened one after the other.

    To measure a dataset costs about 10 us. If they follow each other faster than every 2 ms, one in
    2, 4, ... 64 is measured; it counts for the others.

    Args:
        meters: of the datasets.
    """

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._run = 1
        self._left = 1
        self._last = time.perf_counter()

    def next(self) -> Meters:
        """Return the meters of the next dataset."""
        self._left -= 1
        if self._left > 0:
            return _UNMEASURED
        now = time.perf_counter()
        meters = self._meters if self._run == 1 else self._meters.weighted(self._run)
        fast = now - self._last < self._run * _SECONDS_PER_DATASET
        self._run = min(2 * self._run, _MOST_PER_SAMPLE) if fast else 1
        self._left, self._last = self._run, now
        return meters


class _Unmeasured(Meters):
    """Meters of datasets that are not measured."""

    def watch(self, node: StageNode, numbers: Mapping[Any, int], stream: Stream) -> None:
        pass

    def nested(self, node: StageNode, numbers: Mapping[Any, int]) -> Meters:
        return self

    def weighted(self, weight: int) -> Meters:
        return self


_UNMEASURED = _Unmeasured()
