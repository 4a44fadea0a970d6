"""Start of worker processes: time, CPU time, and memory of their own.

    python benchmarks/bench_start.py [--workers 2 32 128] [--rounds 3] [--old ../old]

For each number of workers a table row has the seconds until a `LocalCluster` returns, whose workers
then accept tasks; the CPU time per worker until then, of the workers and of the process that forks
them; and private pages of a worker 10 s later, by smaps_rollup (medians). Each figure is measured
in a fresh process, and with --old in turn with the `stoker` of another checkout.
"""

import argparse
import json
import os
import re
import time
from functools import partial
from pathlib import Path

from harness import interleaved, machine, median, output_of
from service.processes import cpu_seconds, descendants, worker_processes

import stoker

IDLE_SECONDS = 10.0


def started(workers: int) -> list[float]:
    """Start idle workers; return seconds, CPU seconds per worker, and private MB of a worker."""
    began = time.monotonic()
    with stoker.LocalCluster(workers):
        seconds = time.monotonic() - began
        cpu = cpu_seconds(descendants(os.getpid())) / workers
        time.sleep(IDLE_SECONDS)
        return [seconds, cpu, median(map(_private_mb, worker_processes(os.getpid())))]


def _private_mb(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kib) for kib in re.findall(r"Private_\w+: +(\d+) kB", rollup)) * 1024 / 1e6


def _measured(workers: int, source: Path) -> list[float]:
    line = output_of(__file__, "--measure", str(workers), PYTHONPATH=str(source / "src"))
    figures: list[float] = json.loads(line)
    return figures


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 32, 128])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(started(options.measure)))
        return
    print(machine())
    checkouts = {"this": Path(__file__).resolve().parents[1]}
    if options.old:
        checkouts["old"] = options.old.resolve()
    print("| workers | checkout | s | CPU s per worker | private MB |")
    print("| ---: | --- | ---: | ---: | ---: |")
    for workers in options.workers:
        systems = {name: partial(_measured, workers, source) for name, source in checkouts.items()}
        for name, rounds in interleaved(systems, options.rounds).items():
            figures = [f"{median(column):.3g}" for column in zip(*rounds, strict=True)]
            print(f"| {workers} | {name} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
