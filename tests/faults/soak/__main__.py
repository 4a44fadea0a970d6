"""Run a soak: ``python -m tests.faults.soak --minutes 60 [--seed 1]``.

It prints its story, then the faults and epochs, and for each process the memory, threads and
descriptors of the first and last third, with their slopes. The exit status is 1 if a rule was
broken, or if a process has grown in ten minutes or more.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.soak.faults import FAULTS, Fault
from tests.faults.soak.growth import grown
from tests.faults.soak.processes import Cluster
from tests.faults.soak.run import TRAINERS, WORKERS, Report, Soak

INJECTORS = 2

LONG_MINUTES = 10.0
"""A soak that is shorter has no trend: processes warm up."""


def faults_until(deadline: float, rng: random.Random) -> Iterator[Fault]:
    """Yield all faults, shuffled, again and again until `deadline`, on the monotonic clock."""
    while True:
        for fault in rng.sample(FAULTS, len(FAULTS)):
            if time.monotonic() > deadline:
                return
            yield fault


def print_report(report: Report) -> None:
    """Print the findings."""
    print("\n| fault | times |\n| --- | ---: |")
    for name, count in sorted(report.faults.items()):
        print(f"| {name} | {count} |")
    epochs = ", ".join(f"{count} of {mode}" for mode, count in sorted(report.epochs.items()))
    print(f"\nepochs: {epochs}; {report.elements:,} elements; {report.lost} lost and counted")
    print("\n| process | MB early | late | per hour | threads early | late | descriptors | late |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for role, (early, late, per_hour) in report.trends.items():
        print(
            f"| {role} | {early.megabytes:.1f} | {late.megabytes:.1f} | {per_hour.megabytes:+.1f} "
            f"| {early.threads:g} | {late.threads:g} | {early.descriptors:g} "
            f"| {late.descriptors:g} |"
        )
    for line in report.broken:
        print(f"BROKEN: {line}")


def main() -> int:
    """Run the soak; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="soak-of-stoker-"))
    print(f"seed {options.seed}; logs in {directory}", flush=True)
    deadline = time.monotonic() + options.minutes * 60
    rng = random.Random(options.seed)
    fields = {"shutdown_quiet_period_ms": 25_000}
    with Cluster(directory, WORKERS, TRAINERS, worker=fields) as cluster:
        soak = Soak(cluster, options.seed, lambda line: print(line, flush=True))
        report = soak.run([faults_until(deadline, rng) for _ in range(INJECTORS)])
    if options.minutes >= LONG_MINUTES:
        report.broken += grown(report.trends)
    print_report(report)
    return int(bool(report.broken))


if __name__ == "__main__":
    sys.exit(main())
