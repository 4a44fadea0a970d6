"""Numbers of elements that follow from that of the reader."""

from collections.abc import Iterator, Mapping

from stoker.dataset.streams.measure.stage import Stage
from stoker.dataset.streams.measure.stage_report import FIRST_NESTED, StageReport


def count_estimated(stages: Mapping[int, Stage], reports: list[StageReport], read: int) -> None:
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
            report.counted = True
        for number, ratio in _ratios(report, stages):
            counts[number] = ratio * report.elements
            pending.append(number)


def _ratios(report: StageReport, stages: Mapping[int, Stage]) -> Iterator[tuple[int, int]]:
    """Yield the inputs of which the number of elements follows, with elements per element."""
    nested = [number for number in report.inputs if number >= FIRST_NESTED > report.number]
    if len(nested) == 1:
        yield nested[0], 1
    ratio = stages[report.number].per_element
    if ratio is not None and len(report.inputs) == 1:
        yield report.inputs[0], ratio
