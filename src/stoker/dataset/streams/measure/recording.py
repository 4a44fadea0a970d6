"""Measurements of the stages of an open pipeline."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from stoker.dataset.streams.measure.bottleneck import AskService, Bottleneck
from stoker.dataset.streams.measure.counts import count_estimated
from stoker.dataset.streams.measure.gauge import Gauge
from stoker.dataset.streams.measure.stage import Stage, StageNode
from stoker.dataset.streams.measure.stage_report import FIRST_NESTED, StageReport
from stoker.dataset.streams.stream import Stream

# Re-entrant, because a collection of garbage may close streams anywhere. One for all pipelines, so
# that a forked child can replace it: a thread of the parent may have held it.
_lock = threading.RLock()


def _replace_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_replace_lock)


class Recording:
    """The stages of a pipeline that is opened for one epoch, and measurements of them.

    Attributes:
        services: for stages that read a service, by number, their own bottlenecks. Of several
            streams of one stage the latest counts, also in `remote` and `tasks`.
        remote: for stages that read a service, by number, a function that returns the reports of
            the stages on workers, which are numbered by their positions in the tree's wire form.
        tasks: for stages that read a service, by number, a function that returns its tasks as
            dicts.
        judge: returns what limits the reader of the pipeline; None if nobody measures it.
    """

    def __init__(self) -> None:
        self._stages: dict[int, Stage] = {}
        self._nested_numbers: dict[tuple[int, int, str, str], int] = {}
        self.services: dict[int, AskService] = {}
        self.remote: dict[int, Callable[[], list[StageReport]]] = {}
        self.tasks: dict[int, Callable[[], list[dict[str, Any]]]] = {}
        self.judge: Callable[[], Bottleneck | None] = lambda: None

    def number(self, outer: int | None, node: StageNode, number: int) -> int:
        """Return the number of a stage.

        Args:
            outer: the number of the stage whose function returned the dataset; None without one.
            node: describes the stage.
            number: of the node in its tree.
        """
        if outer is None:
            return number
        key = (outer, number, node.stage_kind, node.site)
        with _lock:
            return self._nested_numbers.setdefault(key, FIRST_NESTED + len(self._nested_numbers))

    def watch(
        self,
        outer: int | None,
        weight: int,
        node: StageNode,
        numbers: Mapping[Any, int],
        stream: Stream,
    ) -> None:
        """Measure a stream that was just opened, unless it is that of the input of its node.

        Args:
            outer: as in `number`.
            weight: the number of streams for which it is measured.
            node: describes the stage.
            numbers: the numbers of the nodes in their tree.
            stream: of the node.
        """
        number = self.number(outer, node, numbers[node])
        with _lock:
            stage = self._stages.get(number)
            if stage is None:
                inputs = [self.number(outer, i, numbers[i]) for i in node.inputs if i in numbers]
                stage = self._stages[number] = Stage(number, node, inputs)
            if stream.gauge is None:
                stage.watch(Gauge(stream, weight, partial(self._close, stage)), stream)

    def join(self, outer: int, root: int) -> None:
        """Add the root of a dataset that a function returned to the inputs of its stage."""
        with _lock:
            stage = self._stages.get(outer)
            if stage is not None and root not in stage.inputs:
                stage.inputs.append(root)

    def forget(self) -> None:
        """Drop the measurements until now: the calls only skipped elements."""
        with _lock:
            for stage in list(self._stages.values()):
                stage.forget()

    def reports(self, elements: int | None = None) -> list[StageReport]:
        """Return the measurements of the stages until now, in the order of their numbers.

        Args:
            elements: the elements that were read; None if they are not known.
        """
        with _lock:
            stages = dict(self._stages)
            found = [stages[number].report() for number in sorted(stages)]
        found = [(report, work) for report, work in found if stages[report.number].opened]
        reports = {report.number: report for report, _ in found}
        for report in reports.values():
            report.inputs = list(dict.fromkeys(_measured_inputs(stages[report.number], stages)))
        for report, work in found:
            limit = work.busy if work.includes_inputs else report.get_wait
            _limit_nested(report, reports, limit)
        readers = Counter(number for report in reports.values() for number in report.inputs)
        for report, work in found:
            inputs = [reports[number] for number in report.inputs]
            if work.includes_inputs:
                inputs = [each for each in inputs if each.number >= FIRST_NESTED]
            waits = sum(each.get_wait / readers[each.number] for each in inputs)
            if not stages[report.number].works:
                report.busy = max(0.0, report.get_wait - waits)
            elif work.includes_inputs:
                report.busy = max(0.0, work.busy - waits)
            else:
                report.busy = work.busy
        if elements is not None:
            count_estimated(stages, list(reports.values()), elements)
        return list(reports.values())

    def _close(self, stage: Stage, gauge: Gauge) -> None:
        with _lock:
            stage.close(gauge)


def _limit_nested(outer: StageReport, reports: Mapping[int, StageReport], limit: float) -> None:
    """Reduce the times of the datasets of a function to those in which their stage read them.

    A slow dataset may count for many that were fast.
    """
    roots = [number for number in outer.inputs if number >= FIRST_NESTED > outer.number]
    total = sum(reports[number].get_wait for number in roots)
    pending = roots if total > limit else []
    seen = set()
    while pending:
        number = pending.pop()
        if number not in seen:
            seen.add(number)
            reports[number].get_wait *= limit / total
            pending.extend(reports[number].inputs)


def _measured_inputs(stage: Stage, stages: Mapping[int, Stage]) -> Iterator[int]:
    """Yield the inputs of a stage, and for those without a stream of their own their inputs."""
    for number in stage.inputs:
        found = stages.get(number)
        if found is not None and found.opened:
            yield number
        elif found is not None:
            yield from _measured_inputs(found, stages)
