"""Run seeds of the simulation: ``python -m tests.simulation --seeds 20000``.

It prints the story of the first seeds that violate an invariant, and a summary of what the
scenarios contained. The exit status is 1 if a seed failed.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from functools import partial
from typing import NamedTuple

from tests.simulation.families import POSITIONS, READS, ROUNDS
from tests.simulation.planted_bugs import NAMES, planted
from tests.simulation.simulation import Family

BLOCK = 20
"""Seeds that a process runs between two reports."""

SHOWN = 400
"""Lines of a story to show, from its end, without ``--whole``."""


class Report(NamedTuple):
    """Results of a block of seeds."""

    seeds: int
    contents: Counter[str]
    failed: dict[int, list[str]]


def story(seed: int, shown: int, family: Family) -> str:
    """Return the trace of a seed, with what it violated at its start and end."""
    trace: list[str] = []
    found, _ = family.check(seed, trace)
    if len(trace) > shown:
        trace = [trace[0], "...", *trace[-shown:]]
    return "\n".join([f"seed {seed}", *found, "", *trace, f"seed {seed}", *found])


def _check_block(seeds: range, family: Family) -> Report:
    report = Report(len(seeds), Counter(), {})
    for seed in seeds:
        found, contents = family.check(seed)
        report.contents.update(contents)
        if found:
            report.failed[seed] = found
    return report


def main() -> int:
    """Run the seeds that the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--failures", type=int, default=1, help="stop after this many failures")
    parser.add_argument("--plant", choices=NAMES, help="plant a bug that must be found")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--rounds", action="store_true", help="run coordinated reads")
    kinds.add_argument("--positions", action="store_true", help="run deterministic epochs")
    parser.add_argument("--whole", action="store_true", help="print whole stories")
    args = parser.parse_args()
    with planted(args.plant):  # before the processes are forked
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    started = time.monotonic()
    end = args.first + args.seeds
    blocks = [range(x, min(x + BLOCK, end)) for x in range(args.first, end, BLOCK)]
    family = POSITIONS if args.positions else ROUNDS if args.rounds else READS
    seeds, contents, failed = 0, Counter[str](), dict[int, list[str]]()
    with multiprocessing.get_context("fork").Pool(args.processes) as pool:
        for report in pool.imap(partial(_check_block, family=family), blocks):
            seeds += report.seeds
            contents += report.contents
            for seed, found in report.failed.items():
                print(f"seed {seed}: {'; '.join(found)}", flush=True)
            failed |= report.failed
            if len(failed) >= args.failures:
                break
        pool.terminate()
    for seed in sorted(failed)[: args.failures]:
        print(story(seed, sys.maxsize if args.whole else SHOWN, family))
    seconds = time.monotonic() - started
    print(f"{seeds} seeds from {args.first} in {seconds:.0f} s, {len(failed)} failed")
    for name, count in sorted(contents.items(), key=lambda item: -item[1]):
        print(f"{count:8}  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
