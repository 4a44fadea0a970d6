"""Measure two checkouts of stoker against each other, without peers.

    python benchmarks/compare.py OLD [NEW] [--rows PATTERN ...] [--pairs 11] [--seconds 1]
        [--together]

OLD and NEW are root folders of checkouts; NEW defaults to this one. The rows come from NEW's
`benchmarks` folder (from this one if NEW has no rows.py) and use the `stoker` of either checkout
through its public API. Each pair measures every row once with each checkout, one right after the
other, in the opposite order of the pair before. Every pair covers all rows before the next begins,
so a disturbance affects one pair of several rows, not all pairs of one row.

Ratios are new to old, above 1 where new is faster: the median over the pairs, the lowest and the
highest. CPU is the same median for CPU time per element, summed over all processes of stoker. A row
is "slower" if both medians are below 0.95, "slower: wall" or "slower: CPU" if one is. The exit
status is 1 if there is such a row, or one that could not be measured.

On a machine that is busy with other work use --together and judge by CPU: both checkouts are
measured at the same time, so a disturbance affects both. Without other work, measure in turn.
"""

import argparse
import contextlib
import dataclasses
import fnmatch
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import Figure, environment, machine, median, output_of

HERE = Path(__file__).resolve().parent
SLOWER = 0.95
LIMIT_SECONDS = 60.0
"""How long a measurement may take beyond ten times the seconds that it measures."""


class RowServer:
    """A process that measures rows with one checkout's stoker; started again if it was lost.

    Args:
        folder: the benchmarks folder whose rows are measured.
        checkout: the root folder of the checkout.
        groups: the groups of rows to import.
    """

    def __init__(self, folder: Path, checkout: Path, groups: Iterable[str]) -> None:
        self._source = checkout / "src"
        self._command = [sys.executable, str(folder / "rows.py"), "--serve", *groups]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with this object
        self._process: subprocess.Popen[str] | None = None

    def measure(self, row: str, seconds: float) -> Figure:
        """Measure one row.

        Raises:
            RuntimeError: if it failed, or took too long.
        """
        return Figure(**self._ask([row, seconds], LIMIT_SECONDS + 10 * seconds))

    def prepare(self, row: str) -> None:
        """Make the files that a row reads.

        Raises:
            RuntimeError: if it failed, or took too long.
        """
        self._ask([row, None], LIMIT_SECONDS)

    def _ask(self, request: Any, seconds: float) -> dict[str, Any]:
        try:
            if self._process is None:
                self._start()
            answer = self._request(request, seconds)
        except (RuntimeError, OSError) as error:
            self.close()
            raise RuntimeError(str(error)) from error
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment() | {"PYTHONPATH": str(self._source)},
            start_new_session=True,
        )
        imported = Path(self._request(None, LIMIT_SECONDS)["stoker"])
        if not imported.is_relative_to(self._source):
            raise RuntimeError(f"{imported} was imported, not {self._source}/stoker")

    def _request(self, request: Any, seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        if request is not None:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        if not select.select([process.stdout], [], [], seconds)[0]:
            raise RuntimeError(f"no result within {seconds:g} s")
        line = process.stdout.readline()
        if not line:
            self._errors.seek(0)
            last = self._errors.read().strip().splitlines()[-1:]
            raise RuntimeError(f"rows.py ended with {process.wait()}: {' '.join(last)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Kill the process and what it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None


@dataclasses.dataclass
class Comparison:
    """The pairs of one row.

    Attributes:
        name: of the row.
        seconds: how long each of its measurements reads.
        pairs: figures of old and new.
        error: why it is not measured any more.
    """

    name: str
    seconds: float
    pairs: list[tuple[Figure, Figure]] = dataclasses.field(default_factory=list)
    error: str = ""

    def wall_ratios(self) -> list[float]:
        """Return new to old of each pair, above 1 where new is faster."""
        return [
            old.value / new.value if new.unit == "ms" else new.value / old.value
            for old, new in self.pairs
        ]

    def cpu_ratio(self) -> float:
        """Return the median of old's to new's CPU time per element; nan if it is unknown."""
        return median(old.cpu / new.cpu for old, new in self.pairs)

    def verdict(self) -> str:
        """Return "slower" if the median ratio of the wall time or the CPU time is below 0.95."""
        wall, cpu = median(self.wall_ratios()) < SLOWER, self.cpu_ratio() < SLOWER
        if wall and (cpu or math.isnan(self.cpu_ratio())):
            return "slower"
        return "slower: wall" if wall else "slower: CPU" if cpu else ""

    def cells(self) -> list[str]:
        """Return the row of the table."""
        if self.error or not self.pairs:
            return [self.name, *[""] * 7, f"not measured: {self.error or 'interrupted'}"]
        ratios, cpu = self.wall_ratios(), self.cpu_ratio()
        values = [median(pair[side].value for pair in self.pairs) for side in (0, 1)]
        return [
            self.name,
            self.pairs[0][0].unit,
            *(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values),
            *(f"{ratio:.2f}" for ratio in (median(ratios), min(ratios), max(ratios))),
            "" if math.isnan(cpu) else f"{cpu:.2f}",
            self.verdict(),
        ]


COLUMNS = ("row", "unit", "old", "new", "new/old", "lowest", "highest", "CPU", "verdict")


def table(comparisons: Iterable[Comparison]) -> str:
    """Return a Markdown table of the comparisons."""
    lines = [list(COLUMNS), *(comparison.cells() for comparison in comparisons)]
    # A verdict may be a long error message; it is last and needs no width.
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    lines.insert(1, ["-" * width for width in widths] + ["---"])
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=False))
        )
        + f" | {line[-1]} |"
        for line in lines
    )


def selected(rows: list[dict[str, Any]], patterns: list[str]) -> list[dict[str, Any]]:
    """Return the rows that a pattern selects: a name, a part of names, or a shell pattern.

    Without patterns, the default rows.

    Raises:
        SystemExit: if a pattern matches no row.
    """
    if not patterns:
        return [row for row in rows if row["default"]]
    names = {row["name"] for row in rows}
    chosen = set()
    for pattern in patterns:
        part = pattern not in names and not any(sign in pattern for sign in "*?[")
        glob = f"*{pattern}*".lower() if part else pattern.lower()
        matching = {name for name in names if fnmatch.fnmatchcase(name.lower(), glob)}
        if not matching:
            sys.exit(f"no row matches {pattern!r}; `rows.py --list` names them all")
        chosen |= matching
    return [row for row in rows if row["name"] in chosen]


def measure_pairs(
    folder: Path, checkouts: dict[str, Path], comparisons: list[Comparison], pairs: int, width: int
) -> None:
    """Measure all rows pair by pair; report progress on stderr.

    A row that failed is not measured again.

    Args:
        folder: the benchmarks folder whose rows are measured.
        checkouts: the root folders by "old" and "new".
        comparisons: filled.
        pairs: how often to measure.
        width: 1 to measure the two sides of a pair in turn, 2 to measure them at the same time.
    """
    groups = list(dict.fromkeys(comparison.name.split("/")[0] for comparison in comparisons))
    for number in range(pairs):
        began = time.monotonic()
        sides = {side: RowServer(folder, checkouts[side], groups) for side in checkouts}
        order = sorted(sides, reverse=number % 2 == 1)
        with ThreadPoolExecutor(width) as pool:
            try:
                if number == 0:  # files that rows share are made by NEW's code
                    for comparison in comparisons:
                        _attempt(comparison, "new", sides["new"].prepare, comparison.name)
                for comparison in comparisons:
                    _add_pair(comparison, {side: sides[side] for side in order}, pool)
            finally:
                for server in sides.values():
                    server.close()
        report = f"pair {number + 1} of {pairs}: {time.monotonic() - began:.0f} s"
        print(report, file=sys.stderr, flush=True)


def _add_pair(comparison: Comparison, sides: dict[str, RowServer], pool: Executor) -> None:
    if not comparison.error:
        measuring = {
            side: pool.submit(server.measure, comparison.name, comparison.seconds)
            for side, server in sides.items()
        }
        figures = {
            side: _attempt(comparison, side, each.result) for side, each in measuring.items()
        }
        if not comparison.error:
            comparison.pairs.append((figures["old"], figures["new"]))


def _attempt(comparison: Comparison, side: str, act: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `act` returns; note in `comparison` if it fails."""
    try:
        return act(*arguments)
    except RuntimeError as error:
        comparison.error = comparison.error or f"{side}: {error}"


def main() -> None:
    """Measure, print the table, and exit with 1 if a row is slower or was not measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("new", type=Path, metavar="NEW", nargs="?", default=HERE.parent)
    parser.add_argument("--rows", nargs="+", default=[], metavar="PATTERN")
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument(
        "--together",
        action="store_true",
        help="measure both sides of a pair at the same time, on a busy machine",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to it")
    options = parser.parse_args()
    checkouts = {"old": options.old.resolve(), "new": options.new.resolve()}
    for root in checkouts.values():
        if not (root / "src" / "stoker").is_dir():
            parser.error(f"{root} is no checkout of stoker: it has no src/stoker")
    folder = checkouts["new"] / "benchmarks"
    if not (folder / "rows.py").exists():
        folder = HERE
    source = str(checkouts["new"] / "src")
    rows = json.loads(output_of(str(folder / "rows.py"), "--list", PYTHONPATH=source))
    comparisons = [
        Comparison(row["name"], row["seconds"] * options.seconds)
        for row in selected(rows, options.rows)
    ]
    began = time.monotonic()
    interrupted = False
    try:
        measure_pairs(folder, checkouts, comparisons, options.pairs, 1 + options.together)
    except KeyboardInterrupt:
        interrupted = True
    minutes = (time.monotonic() - began) / 60
    print(
        f"{machine()}; old {checkouts['old']}, new {checkouts['new']}; medians of {options.pairs} "
        f"pairs{' measured together' * options.together}{', interrupted' * interrupted}; "
        f"{minutes:.1f} min, load {os.getloadavg()[1]:.1f}"
    )
    print(table(comparisons))
    if options.json:
        figures = [dataclasses.asdict(comparison) for comparison in comparisons]
        options.json.write_text(json.dumps(figures, indent=1))
    failed = any(not each.pairs or each.error or each.verdict() for each in comparisons)
    sys.exit(1 if failed or interrupted else 0)


if __name__ == "__main__":
    main()
