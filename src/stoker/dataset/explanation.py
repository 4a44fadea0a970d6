"""The tree of a dataset as text, with measurements of its last epoch."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stoker.dataset.bottleneck import seconds_text
from stoker.dataset.measurements import Measurements
from stoker.dataset.streams.stage_report import FIRST_NESTED, StageReport
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Node, number
from stoker.dataset.tree.structure import decode_wire_nodes

_LONGEST_SPEC = 48

_DESCRIPTION = ("stage", "line", "cardinality", "element_spec")
_MEASURED = ("elements", "time", "P50", "P99", "waited for", "buffer")


class _Line(NamedTuple):
    """One stage.

    Attributes:
        depth: the number of nodes with several inputs above it.
        cells: its `_DESCRIPTION`.
        report: its measurements; None without any.
        computer: where it computes, for its part of the time there: "workers" or "here"; "" for a
            stage that only waits for workers.
    """

    depth: int
    cells: tuple[str, str, str, str]
    report: StageReport | None
    computer: str = "here"


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
                self._remote = measurements.recording.remote
        self._numbers = number(root)
        self._lines = list(self._lines_of(root, 0, set()))

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

    def _columns(self) -> tuple[str, ...]:
        return (*_DESCRIPTION, *_MEASURED) if self._reports else _DESCRIPTION

    def _rows(self) -> Iterator[list[str]]:
        totals = {"": 0.0, "here": 0.0, "workers": 0.0}
        for line in self._lines:
            if line.report is not None and line.computer:
                totals[line.computer] += line.report.busy
        for depth, (stage, *others), report, computer in self._lines:
            row = ["  " * depth + stage, *others]
            if self._reports:
                row += _measured(report, totals[computer])
            yield row

    def _lines_of(self, root: Node, depth: int, shown: set[Node]) -> Iterator[_Line]:
        """Yield the lines of a tree, inputs first; of a node that several read only the first."""
        if root in shown:
            return
        shown.add(root)
        for child in root.inputs:
            yield from self._lines_of(child, depth + (len(root.inputs) > 1), shown)
        report = self._reports.get(self._numbers[root])
        if report is not None:
            for each in report.inputs:
                if each >= FIRST_NESTED:
                    yield from self._lines_of_nested(self._reports[each], depth + 1)
        yield from self._lines_on_workers(root, depth + 1)
        label = _label(root.kind, root.function_name())
        spec = repr(root.element_spec())
        if len(spec) > _LONGEST_SPEC:
            spec = spec[: _LONGEST_SPEC - 3] + "..."
        waits = root.remote_tree() or self._numbers[root] in self._remote
        computer = "" if waits else "here"
        yield _Line(depth, (label, root.site, _cardinality(root), spec), report, computer)

    def _lines_of_nested(self, report: StageReport, depth: int) -> Iterator[_Line]:
        """Yield the lines of a dataset that a function returned, known by its reports only."""
        inputs = [self._reports[each] for each in report.inputs if each in self._reports]
        for each in inputs:
            yield from self._lines_of_nested(each, depth + (len(inputs) > 1))
        yield _Line(depth, (_label(report.kind, report.function), report.site, "", ""), report)

    def _lines_on_workers(self, root: Node, depth: int) -> Iterator[_Line]:
        """Yield the lines of the stages that workers run, in the order of the wire form."""
        tree = root.remote_tree()
        if not tree:
            return
        ask = self._remote.get(self._numbers[root])
        reports = {} if ask is None else {report.number: report for report in ask()}
        for position, wire in enumerate(decode_wire_nodes(tree)):
            report = reports.get(position)
            label = _label(wire.kind, "" if report is None else report.function)
            cells = f"{label} on workers", wire.site, "", ""
            yield _Line(depth, cells, report, "workers")


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
