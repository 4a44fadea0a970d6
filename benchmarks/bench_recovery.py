"""Faults of running services: stoker beside tf.data service.

    python benchmarks/bench_recovery.py [--runs 20] [--only worker-kill ...] [--together 4]

A dispatcher, two workers and a trainer, all in processes of their own, with a proxy on each
connection; elements of 1 MB over TCP without compression. A worker takes 20 ms for an element, and
a step of the trainer takes 20 ms. A fault happens after 100 elements of a DYNAMIC epoch. `--mode`
names other modes, as in `--systems stoker --mode distributed_epoch deterministic_epoch`. The median
of the runs, and the worst in parentheses, of

- the longest pause of the trainer between two elements from the fault on,
- where a worker is harmed, the time until it or the process that replaces it delivers again: from
  the fault, or from its end where it lasts 30 s,
- elements lost, elements received twice, and elements that follow one of a higher number,
- epochs that do not end within a minute after the others, or end with an error.

A worker of tf.data service that has ended is started again at once by this script, as `stoker
worker` does it for stoker. `--together` measures several faults at a time, each in servers of its
own: most of the time is spent waiting.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from harness import environment, machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recovery.faults import FAULTS, VICTIM, Fault
from recovery.services import Arrival, Epoch, Service
from recovery.trainer import STEP_SECONDS

BEFORE = 100
"""Elements that have arrived before the fault."""

AFTER = 500
"""Elements that a trainer reads after a fault."""

LATE_SECONDS = 60.0
BY_POSITION = "deterministic_epoch"


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        pause: seconds.
        recovery: seconds; ``None`` if no worker is harmed, or it does not deliver again.
        lost: elements.
        repeated: elements.
        unordered: elements of the first trainer that follow one of a higher number.
        ended: the epoch ended.
        error: with which it ended, or "".
    """

    pause: float
    recovery: float | None
    lost: int
    repeated: int
    unordered: int
    ended: bool
    error: str


def measure(service: Service, fault: Fault, mode: str, run: int) -> Outcome:
    """Harm a service during an epoch.

    Trainers of a deterministic epoch are consumers, and the elements of the first one count: those
    of a killed consumer wait for the trainer that goes on from its state.
    """
    elements = BEFORE + AFTER + int(fault.seconds / STEP_SECONDS)
    all_elements = elements * fault.trainers
    consumers = fault.trainers if mode == BY_POSITION and fault.trainers > 1 else None
    job_name = f"job {run}" if fault.trainers > 1 and consumers is None else None
    epochs = [
        trainer.begin(all_elements, mode, job_name, consumers and index, consumers)
        for index, trainer in enumerate(service.trainers[: fault.trainers])
    ]
    for epoch in epochs:
        epoch.wait_count(BEFORE)
    victim = service.worker_pid(VICTIM)
    before = {arrival.worker for arrival in epochs[0].arrivals}
    began = time.monotonic()
    counts_from = fault.inject(service)
    expected = 2 * elements * STEP_SECONDS * fault.trainers
    epoch = epochs[0]
    epoch.wait_for(lambda: epoch.ended_at is not None, expected + LATE_SECONDS)
    fault.restore(service)
    late = [arrival for arrival in epoch.arrivals if arrival.time > began]
    delivers_again = {
        "victim": lambda worker: worker == victim,
        "successor": lambda worker: worker not in before,
        "": lambda _: False,
    }[fault.recovered_by]
    back = [x.time for x in late if x.time > counts_from and delivers_again(x.worker)]
    read = epochs[:1] if consumers else epochs
    counts = Counter(arrival.number for each in read for arrival in each.arrivals)
    numbers = [arrival.number for arrival in epoch.arrivals]
    return Outcome(
        longest_pause(late, began, epoch),
        min(back) - counts_from if back else None,
        (elements if consumers else all_elements) - len(counts),
        sum(count - 1 for count in counts.values()),
        sum(later < earlier for earlier, later in pairwise(numbers)),
        epoch.ended_at is not None,
        epoch.error,
    )


def longest_pause(late: Sequence[Arrival], began: float, epoch: Epoch) -> float:
    """Return the longest time in seconds without an element from the fault on."""
    times = [began, *(arrival.time for arrival in late), epoch.ended_at or time.monotonic()]
    return max(later - earlier for earlier, later in pairwise(times))


def measure_all(system: str, mode: str, name: str, runs: int) -> list[Outcome]:
    """Measure a fault `runs` times, in new servers after an epoch that did not end cleanly."""
    fault = FAULTS[name]
    outcomes: list[Outcome] = []
    while len(outcomes) < runs:
        with (
            tempfile.TemporaryDirectory(prefix="recovery-bench-") as directory,
            Service(system, Path(directory), journal=fault.journal) as service,
        ):
            warm_up(service, mode)
            while len(outcomes) < runs:
                outcome = measure(service, fault, mode, len(outcomes))
                outcomes.append(outcome)
                print(
                    f"{system} {mode} {name}: {json.dumps(asdict(outcome))}",
                    file=sys.stderr,
                    flush=True,
                )
                if outcome.error or not outcome.ended:
                    break
                warm_up(service, mode)
    return outcomes


def warm_up(service: Service, mode: str) -> None:
    """Read epochs until both workers deliver, and both trainers have read."""
    for trainer in service.trainers:
        deadline = time.monotonic() + LATE_SECONDS
        workers: set[int] = set()
        while len(workers) < len(service.machines):
            if time.monotonic() > deadline:
                raise RuntimeError(f"only workers {workers} deliver")
            epoch = trainer.begin(40, mode)
            epoch.wait_for(lambda epoch=epoch: epoch.ended_at is not None, LATE_SECONDS)
            workers = {arrival.worker for arrival in epoch.arrivals}


def row(title: str, system: str, mode: str, outcomes: Sequence[Outcome]) -> str:
    """Return a line of the table."""
    recoveries = [each.recovery or math.inf for each in outcomes]
    failures = Counter(
        each.error.partition(":")[0] or "does not end"
        for each in outcomes
        if each.error or not each.ended
    )
    cells = [
        title,
        system,
        mode,
        spread([each.pause for each in outcomes], ".2f"),
        spread(recoveries, ".2f") if min(recoveries) < math.inf else "",
        spread([each.lost for each in outcomes], ".0f"),
        spread([each.repeated for each in outcomes], ".0f"),
        spread([each.unordered for each in outcomes], ".0f"),
        ", ".join(f"{count} x {text}" for text, count in failures.items()),
    ]
    return f"| {' | '.join(cells)} |"


def spread(values: Sequence[float], form: str) -> str:
    """Return median and maximum."""
    return f"{statistics.median(values):{form}} ({max(values):{form}})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--peer-runs", type=int, help="of tf.data service; default: as --runs")
    parser.add_argument("--only", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--systems", nargs="*", default=["stoker", "tf.data"])
    parser.add_argument("--mode", nargs="+", default=["distributed_epoch"])
    parser.add_argument("--together", type=int, default=1)
    options = parser.parse_args()
    os.environ.update(environment())
    print(f"{machine()}, {options.runs} runs")
    print(
        "| fault | system | mode | longest pause, s | recovery, s | lost | repeated | unordered "
        "| not ended |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    runs = {"stoker": options.runs, "tf.data": options.peer_runs or options.runs}
    with ThreadPoolExecutor(options.together) as pool:
        rows = [
            (name, system, mode, pool.submit(measure_all, system, mode, name, runs[system]))
            for name in options.only
            for system in options.systems
            for mode in options.mode
        ]
        for name, system, mode, outcomes in rows:
            title = FAULTS[name].title
            try:
                print(row(title, system, mode, outcomes.result()), flush=True)
            except Exception as error:  # noqa: BLE001 - the other rows go on
                print(f"| {title} | {system} | {mode} | {error!r} |", flush=True)


if __name__ == "__main__":
    main()
