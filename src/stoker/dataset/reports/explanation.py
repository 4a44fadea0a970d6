"""The tree of a dataset as text, with measurements of its last epoch."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from stoker.dataset.reports.html_table import html_table
from stoker.dataset.reports.measurements import Measurements
from stoker.dataset.streams.measure.bottleneck import seconds_text
from stoker.dataset.streams.measure.stage_report import FIRST_NESTED, StageReport
from stoker.dataset.tree.local_form import local_form
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Node, number
from stoker.dataset.tree.structure import decode_wire_nodes
from stoker.dataset.tree.walk import inputs_first

_LONGEST_SPEC = 48

_DESCRIPTION = ("stage", "line", "cardinality", "element_spec")
_MEASURED = ("elements", "time", "P50", "P99", "waited for", "buffer")

_Key: TypeAlias = int | tuple[int, int]
"""The number of a stage; on workers, that of the stage here and the position in its tree."""


class _Stage(NamedTuple):
    """One line.

    Attributes:
        cells: its `_DESCRIPTION`.
        inputs: the stages that it reads.
        inner: the roots of the datasets that its function returned, or of the tree that workers
            run.
        report: its measurements; None without any.
        computer: where it computes, for its part of the time there: "workers" or "here"; "" for a
            stage that only waits for workers.
    """

    cells: tuple[str, str, str, str]
    inputs: list[_Key]
    inner: list[_Key]
    report: StageReport | None
    computer: str


class Explanation:
    """The stages of a dataset, one a line, each after its inputs; `print` it, or show it with rich.

    The inputs of a stage that has several are indented, as are the datasets that a function
    returned and the stages that workers run. After a pass a line contains the elements that the
    stage yielded, the part of the time of all stages that it took, the median and the 99th
    percentile of its time per element, for how long it was waited for, and the mean part of its
    buffer that was filled; "~" precedes estimates. The last line says what limits the rate.

    Args:
        root: the tree.
        measurements: of the last epoch; None if there was none.
    """

    def __init__(self, root: Node, measurements: Measurements | None) -> None:
        self._sentence = "Not read yet: the times of the stages are known after a pass."
        self._reports: dict[int, StageReport] = {}
        self._remote: Mapping[int, Any] = {}
        if measurements is not None:
            times, stages, found = measurements.look()
            if times.elapsed > 0:
                self._sentence = found.sentence
                self._reports = {report.number: report for report in stages}
                self._remote = measurements.recording.services
        numbers = local_form(root).numbers  # those of the measurements
        last: _Key = numbers[root]
        self._stages = dict(self._stages_of(numbers))
        self._lines = [
            (self._stages[key], depth)
            for key, depth, again in inputs_first(last, self._inputs_of)
            if not again
        ]

    def __str__(self) -> str:
        rows = [list(self._columns()), *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self._sentence])

    __repr__ = __str__

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(*self._columns(), box=None, pad_edge=False, header_style="bold")
        for row in self._rows():
            table.add_row(*map(Text, row))
        return Group(table, Text(self._sentence))

    def _repr_html_(self) -> str:
        return html_table(self._columns(), self._rows(), self._sentence)

    def _columns(self) -> tuple[str, ...]:
        return (*_DESCRIPTION, *_MEASURED) if self._reports else _DESCRIPTION

    def _rows(self) -> Iterator[list[str]]:
        # Workers compute beside this process, so the parts of the time there add up to 100 % alone.
        totals = {"": 0.0, "here": 0.0, "workers": 0.0}
        for stage, _ in self._lines:
            if stage.report is not None and stage.computer:
                totals[stage.computer] += stage.report.busy
        for stage, depth in self._lines:
            label, *others = stage.cells
            row = ["  " * depth + label, *others]
            if self._reports:
                row += _measured(stage.report, totals[stage.computer])
            yield row

    def _inputs_of(self, key: _Key) -> list[tuple[_Key, int]]:
        stage = self._stages[key]
        depth = int(len(stage.inputs) > 1)
        return [(each, depth) for each in stage.inputs] + [(each, 1) for each in stage.inner]

    def _stages_of(self, numbers: Mapping[Node, int]) -> Iterator[tuple[_Key, _Stage]]:
        for node, at in numbers.items():
            report = self._reports.get(at)
            read = [] if report is None else report.inputs
            inner: list[_Key] = [each for each in read if each >= FIRST_NESTED]
            workers = dict(self._stages_on_workers(node, at))
            yield from workers.items()
            inputs: list[_Key] = [numbers[each] for each in node.inputs]
            inner += list(workers)[-1:]
            waits = bool(workers) or at in self._remote
            yield at, _Stage(_description(node), inputs, inner, report, "" if waits else "here")
        for report in self._reports.values():
            if report.number >= FIRST_NESTED:
                inputs = [each for each in report.inputs if each in self._reports]
                cells = _label(report.kind, report.function), report.site, "", ""
                computer = "" if report.number in self._remote else "here"
                yield report.number, _Stage(cells, inputs, [], report, computer)

    def _stages_on_workers(self, node: Node, at: int) -> Iterator[tuple[_Key, _Stage]]:
        tree = node.remote_tree()
        if not tree:
            return
        service = self._remote.get(at)
        reports = {} if service is None else {each.number: each for each in service.stages()}
        nodes = decode_wire_nodes(tree)
        # In a deterministic epoch, the nodes on workers have the numbers of a local pipeline.
        first = 0 if node.remote_epoch() is None else at - len(nodes) + 1
        for position, wire in enumerate(nodes):
            report = reports.get(first + position)
            label = _label(wire.kind, "" if report is None else report.function)
            cells = f"{label} on workers", wire.site, "", ""
            inputs: list[_Key] = [(at, each) for each in wire.inputs]
            yield (at, position), _Stage(cells, inputs, [], report, "workers")


def outline(root: Node) -> str:
    """Return the nodes of a tree as an HTML table; nothing is asked of a service."""
    rows = [(_label(x.kind, x.function_name()), x.site, _spec(x)) for x in number(root)]
    return html_table(("stage", "line", "element_spec"), rows)


def _description(node: Node) -> tuple[str, str, str, str]:
    return _label(node.kind, node.function_name()), node.site, _cardinality(node), _spec(node)


def _spec(node: Node) -> str:
    spec = repr(node.element_spec())
    return f"{spec[: _LONGEST_SPEC - 3]}..." if len(spec) > _LONGEST_SPEC else spec


def _label(kind: str, function: str) -> str:
    return f"{kind}({function})" if function else kind


def _cardinality(node: Node) -> str:
    count = node.cardinality()
    names = {INFINITE_CARDINALITY: "infinite", UNKNOWN_CARDINALITY: "unknown"}
    return names.get(count, f"{count:,}")


def _measured(report: StageReport | None, total: float) -> list[str]:
    """Return the `_MEASURED` of a stage; empty texts for a stage that only forwards."""
    if report is None:
        return [""] * len(_MEASURED)
    return [
        f"{'~' if report.estimated and not report.counted else ''}{report.elements:,}",
        f"{report.busy / total:.0%}" if total else "",
        seconds_text(report.p50) if report.p50 else "",
        seconds_text(report.p99) if report.p99 else "",
        seconds_text(report.get_wait),
        "" if report.occupancy is None else f"{report.occupancy:.0%}",
    ]
