"""What is printed: a table of rows, then each figure that must be reached beside what was."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from harness import median

from service.measuring import Measured
from service.rows import BARE, COPY_AGAIN, COPY_FRESH, ROWS, Row
from service.targets import TARGETS, Target

Measurements = Mapping[str, list[Measured]]
"""Of one row: each subject's, round by round."""

LEGEND = """\
ratio, worst: to tf.data service, or to what the row says; median and worst of the rounds' ratios
socket, fresh, reused: median ratio to the bare socket pair, to memcpy into fresh and reused memory
µs user: CPU of the trainer's thread that reads, for each element, with its reading
CPU s/GB: of the trainer's process; MB: peaks, own pages + pages of shared memory"""


class Line(NamedTuple):
    """What one line of the table is made from."""

    row: Row
    label: str
    measured: Measurements

    def good(self, of: str) -> float:
        """The median over the rounds in which it was measured."""
        return median(getattr(one, of) for one in self.measured[self.label] if not one.why)

    def ratio(self, against: str | None, of: Callable[[list[float]], float] = median) -> str:
        """The median of the rounds' ratios, or what else is asked of them; "" where none is."""
        if against in (None, self.label):
            return ""
        figures = _ratios(self.measured, self.label, against, self._counts)
        return _number(of(figures)) if figures else ""

    def peak(self, side: str) -> str:
        """Median peak of the trainer's or the workers' memory."""
        peaks = [getattr(one, side) for one in self.measured[self.label] if not one.why]
        own, shared = median(peak.own for peak in peaks), median(peak.shared for peak in peaks)
        return f"{own:,.0f} + {shared:,.0f}" if own else ""

    @property
    def against(self) -> str | None:
        """The label of what it is divided by."""
        return self.row.subject(self.label).against

    @property
    def worst(self) -> Callable[[list[float]], float]:
        """Of rates the least, of times the longest."""
        return max if self.row.first else min

    @property
    def _counts(self) -> str:
        return "milliseconds" if self.row.first else "rate"


COLUMNS: dict[str, tuple[int, Callable[[Line], str]]] = {
    "ms": (8, lambda line: _figure(line.good("milliseconds"), ",.1f")),
    "/s": (12, lambda line: _figure(line.good("rate"), ",.0f")),
    "GB/s": (7, lambda line: _figure(line.good("gigabytes"), ".2f")),
    "ratio": (8, lambda line: line.ratio(line.against)),
    "worst": (7, lambda line: line.ratio(line.against, line.worst)),
    "socket": (8, lambda line: line.ratio(BARE.label)),
    "fresh": (7, lambda line: line.ratio(COPY_FRESH.label)),
    "reused": (8, lambda line: line.ratio(COPY_AGAIN.label)),
    "µs user": (10, lambda line: _figure(line.good("user_microseconds"), ",.1f")),
    "CPU s/GB": (10, lambda line: _figure(line.good("cpu_per_gigabyte"), ",.2f")),
    "trainer MB": (13, lambda line: line.peak("trainer")),
    "workers MB": (13, lambda line: line.peak("workers")),
}

HEADER = f"{'':36}" + "".join(f"{title:>{width}}" for title, (width, _) in COLUMNS.items())


def lines_of(name: str, measured: Measurements) -> Iterable[str]:
    """One row of the table: a line for each subject."""
    row = ROWS[name]
    yield f"{name}: {row.element.title}{row.title and ', '}{row.title}"
    for label, rounds in measured.items():
        whys = [one.why for one in rounds if one.why]
        if len(whys) == len(rounds):
            yield f"  {label:34}not measured: {whys[0]}"
        else:
            line = Line(row, label, measured)
            cells = "".join(f"{cell(line):>{width}}" for width, cell in COLUMNS.values())
            failed = f"  {len(whys)} of {len(rounds)} failed: {whys[0]}" if whys else ""
            yield f"  {label:34}{cells}{failed}"


def verdicts(measured: Mapping[str, Measurements]) -> Iterable[str]:
    """A line for every target that what was measured can answer."""
    yield f"{'it must reach':54}{'target':>12}{'reached':>10}"
    for target in TARGETS:
        needed = {target.label, target.against or target.label}
        if needed <= measured.get(target.row, {}).keys():
            yield _verdict(target, measured[target.row])


def _verdict(target: Target, measured: Measurements) -> str:
    unit = "" if target.against is None else " x"
    bound = f"{'≥' if target.at_least else '≤'} {target.bound:,g}{unit}"
    head = f"{target.figure:54}{bound:>12}"
    for label in filter(None, (target.label, target.against)):
        if all(one.why for one in measured[label]):
            return f"{head}{'-':>10}  no: {label} was not measured"
    if target.against is None:
        figures = [getattr(one, target.of) for one in measured[target.label] if not one.why]
    else:
        figures = _ratios(measured, target.label, target.against, target.of)
    reached = median(figures) if figures else math.nan
    ok = reached >= target.bound if target.at_least else reached <= target.bound
    return f"{head}{_number(reached):>10}  {'yes' if ok else 'no'}"


def _ratios(measured: Measurements, label: str, against: str | None, of: str) -> list[float]:
    """Round by round, where both were measured."""
    pairs = zip(measured[label], measured.get(against or "", []), strict=False)
    return [getattr(a, of) / getattr(b, of) for a, b in pairs if not a.why and not b.why]


def _number(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def _figure(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)
