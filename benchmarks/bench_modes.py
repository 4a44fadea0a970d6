"""Two processing modes of stoker, measured in pairs in one run.

    python benchmarks/bench_modes.py [--modes distributed_epoch deterministic_epoch]
        [--only jpeg scalars ...] [--pairs 10] [--seconds 1] [--protocol tcp]

Each row has a service of its own, with worker processes that the two modes read in turn, each pair
in the opposite order of the pair before. The table has the medians of both modes, the median ratio
of the second to the first with the lowest and the highest, the median ratio of the CPU time per
element, and the bound of the second mode with what it reached. The mode "local" runs the pipeline
in this process. Rows:

    jpeg, batches*, kilobytes, scalars, arrays   elements per second from two workers
    first, first-image   `iter()` to the first element
    turns                CPU time of the trainer per element of 20 ms, each in a frame of its own
    slow-worker          rate relative to seven workers, beside an eighth that is ten times slower
    ranks                rows per second of a whole epoch, which eight processes read together
    resume*              from a state far within an epoch to the next element

Faults are measured by `bench_recovery.py --systems stoker --mode MODE MODE`.
"""

import argparse
import dataclasses
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import bench_jpeg
from bench_waiting import served
from harness import interleaved, machine, median
from modes.measures import Side
from modes.rows import ROWS, Pairs, Row


def measured(row: Row, options: Any) -> Pairs:
    """Measure the pairs of one row."""
    with served(row.workers) as service:
        sides = {
            f"{place} {mode}": partial(
                row.measure,
                Side(mode, service["target"], service["workers"], options.protocol),
                row.seconds * options.seconds,
            )
            for place, mode in enumerate(options.modes)
        }
        first, second = interleaved(sides, options.pairs).values()
    return list(zip(first, second, strict=True))


def line(row: Row, pairs: Pairs) -> str:
    """Return a line of the table."""
    ratios = [new.value / old.value for old, new in pairs]
    cpu = median(new.cpu / old.cpu for old, new in pairs)
    cells = [
        row.title,
        pairs[0][0].unit,
        *(_short(median(pair[side].value for pair in pairs)) for side in (0, 1)),
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        "" if math.isnan(cpu) else f"{cpu:.2f}",
        row.bound.verdict(pairs) if row.bound else "",
    ]
    return f"| {' | '.join(cells)} |"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modes = ["distributed_epoch", "deterministic_epoch"]
    parser.add_argument("--modes", nargs=2, default=modes, metavar=("FIRST", "SECOND"))
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--protocol", default="tcp")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to it")
    options = parser.parse_args()
    bench_jpeg.photos()
    print(f"{machine()}; medians of {options.pairs} pairs in one run, {options.protocol}")
    print(f"| | unit | {' | '.join(options.modes)} | ratio | CPU | bound: reached |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- |", flush=True)
    figures: dict[str, list[list[dict[str, Any]]]] = {}
    for name in options.only:
        try:
            pairs = measured(ROWS[name], options)
        except Exception as error:  # noqa: BLE001 - the other rows go on
            print(f"| {ROWS[name].title} | not measured: {error!r} |", flush=True)
            continue
        print(line(ROWS[name], pairs), flush=True)
        figures[name] = [[dataclasses.asdict(each) for each in pair] for pair in pairs]
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
