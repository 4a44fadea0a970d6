"""The printed table: rows, then each target with the figure that was reached."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from harness import median

from service.measuring import Measured
from service.rows import BARE, COPY_FRESH, COPY_REUSED, ROWS, Row
from service.targets import TARGETS, Target

Measurements = Mapping[str, list[Measured]]
"""The measurements of one row: a list by subject, round by round."""

LEGEND = """\
ratio, worst: to tf.data service, or to the row's baseline; median and worst of the rounds' ratios
socket, fresh, reused: median ratio to the bare socket pair, to memcpy into fresh and reused memory
µs user: CPU of the trainer's thread that reads, for each element, with its reading
CPU s/GB: of the trainer's process; MB: peaks, own pages + pages of shared memory"""


class Line(NamedTuple):
    """The measurements that one line of the table shows."""

    row: Row
    label: str
    measured: Measurements

    def median_of(self, attribute: str) -> float:
        """Return the median of an attribute over the rounds that succeeded."""
        return median(getattr(one, attribute) for one in self.measured[self.label] if not one.error)

    def ratio(self, baseline: str | None, summary: Callable[[list[float]], float] = median) -> str:
        """Return the summary of the rounds' ratios to `baseline`; "" if there are none."""
        if baseline in (None, self.label):
            return ""
        ratios = _ratios(self.measured, self.label, baseline, self._attribute)
        return _number(summary(ratios)) if ratios else ""

    def peak(self, side: str) -> str:
        """Return the median peak of the trainer's or the workers' memory."""
        peaks = [getattr(one, side) for one in self.measured[self.label] if not one.error]
        own, shared = median(peak.own for peak in peaks), median(peak.shared for peak in peaks)
        return f"{own:,.0f} + {shared:,.0f}" if own else ""

    @property
    def baseline(self) -> str | None:
        """The label of the line that this one is divided by."""
        return self.row.subject(self.label).baseline

    @property
    def worst(self) -> Callable[[list[float]], float]:
        """The summary that picks the lowest rate, or the longest time."""
        return max if self.row.first else min

    @property
    def _attribute(self) -> str:
        return "milliseconds" if self.row.first else "rate"


COLUMNS: dict[str, tuple[int, Callable[[Line], str]]] = {
    "ms": (8, lambda line: _figure(line.median_of("milliseconds"), ",.1f")),
    "/s": (12, lambda line: _figure(line.median_of("rate"), ",.0f")),
    "GB/s": (7, lambda line: _figure(line.median_of("gigabytes"), ".2f")),
    "ratio": (8, lambda line: line.ratio(line.baseline)),
    "worst": (7, lambda line: line.ratio(line.baseline, line.worst)),
    "socket": (8, lambda line: line.ratio(BARE.label)),
    "fresh": (7, lambda line: line.ratio(COPY_FRESH.label)),
    "reused": (8, lambda line: line.ratio(COPY_REUSED.label)),
    "µs user": (10, lambda line: _figure(line.median_of("user_microseconds"), ",.1f")),
    "CPU s/GB": (10, lambda line: _figure(line.median_of("cpu_per_gigabyte"), ",.2f")),
    "trainer MB": (13, lambda line: line.peak("trainer")),
    "workers MB": (13, lambda line: line.peak("workers")),
}

HEADER = f"{'':36}" + "".join(f"{title:>{width}}" for title, (width, _) in COLUMNS.items())


def lines_of(name: str, measured: Measurements) -> Iterable[str]:
    """Yield the lines of one row: a heading, then one per subject."""
    row = ROWS[name]
    yield f"{name}: {row.element.title}{row.title and ', '}{row.title}"
    for label, rounds in measured.items():
        errors = [one.error for one in rounds if one.error]
        if len(errors) == len(rounds):
            yield f"  {label:34}not measured: {errors[0]}"
        else:
            line = Line(row, label, measured)
            cells = "".join(f"{cell(line):>{width}}" for width, cell in COLUMNS.values())
            failed = f"  {len(errors)} of {len(rounds)} failed: {errors[0]}" if errors else ""
            yield f"  {label:34}{cells}{failed}"


def verdicts(measured: Mapping[str, Measurements]) -> Iterable[str]:
    """Yield a line for every target whose subjects were measured."""
    yield f"{'target':54}{'bound':>12}{'reached':>10}"
    for target in TARGETS:
        needed = {target.label, target.baseline or target.label}
        if needed <= measured.get(target.row, {}).keys():
            yield _verdict(target, measured[target.row])


def _verdict(target: Target, measured: Measurements) -> str:
    unit = "" if target.baseline is None else " x"
    bound = f"{'≥' if target.at_least else '≤'} {target.bound:,g}{unit}"
    head = f"{target.figure:54}{bound:>12}"
    for label in filter(None, (target.label, target.baseline)):
        if all(one.error for one in measured[label]):
            return f"{head}{'-':>10}  no: {label} was not measured"
    if target.baseline is None:
        figures = [
            getattr(one, target.attribute) for one in measured[target.label] if not one.error
        ]
    else:
        figures = _ratios(measured, target.label, target.baseline, target.attribute)
    reached = median(figures) if figures else math.nan
    ok = reached >= target.bound if target.at_least else reached <= target.bound
    return f"{head}{_number(reached):>10}  {'yes' if ok else 'no'}"


def _ratios(
    measured: Measurements, label: str, baseline: str | None, attribute: str
) -> list[float]:
    """Return ratios of the rounds in which both were measured."""
    pairs = zip(measured[label], measured.get(baseline or "", []), strict=False)
    return [
        getattr(a, attribute) / getattr(b, attribute)
        for a, b in pairs
        if not a.error and not b.error
    ]


def _number(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def _figure(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)
