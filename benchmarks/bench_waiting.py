"""Elements that come one at a time: worker processes whose functions only wait.

    python benchmarks/bench_waiting.py [--workers 1 16 64 128] [--seconds 5]

Each worker process computes an element in 20 ms, in which it sleeps, so that N of them yield 50 N
elements per second if nothing else limits them. The table has that fraction, and the CPU time per
element of the workers and of the trainer, which is this process. The dispatcher is another.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from harness import Figure, Row, machine
from service.processes import cpu_seconds, wait_until_ended, worker_processes

import stoker

WAIT_SECONDS = 0.02
IDLE_SECONDS = 5.0
STARTING = 8  # workers that start at a time
WARM_UP_SECONDS, WARM_UP_SECONDS_PER_WORKER = 3.0, 0.2  # each opens its pipeline at first


class Waited(NamedTuple):
    """Elements per second, and CPU microseconds per element."""

    rate: float
    worker: float
    trainer: float


@contextmanager
def served(workers: int) -> Iterator[dict[str, Any]]:
    """Run a dispatcher with `workers` worker processes; yield their target and ids."""
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(workers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        found = json.loads(server.stdout.readline())
        yield found
        server.stdin.close()
        server.wait(60)
        wait_until_ended(found["workers"], 60)


def serve(workers: int) -> None:
    """Start worker processes, a few at a time, and serve until stdin ends."""
    with stoker.LocalCluster(0) as cluster, ThreadPoolExecutor(STARTING) as pool:
        for started in [pool.submit(cluster.add_worker) for _ in range(workers)]:
            started.result()
        print(
            json.dumps({"target": cluster.target, "workers": worker_processes(os.getpid())}),
            flush=True,
        )
        sys.stdin.read()


def wait(number: int) -> int:
    """Return `number` after a wait, as a function that reads from a network does."""
    time.sleep(WAIT_SECONDS)
    return number


def idle_share(workers: list[int]) -> float:
    """Return the part of a core that one idle worker uses."""
    before = cpu_seconds(workers)
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(workers) - before) / IDLE_SECONDS / len(workers)


def read(target: str, workers: list[int], seconds: float, protocol: str | None) -> Waited:
    """Read for `seconds` from workers that wait."""
    dataset = stoker.Dataset.range(1 << 40).map(wait)
    distributed = dataset.distribute(
        target, processing_mode="distributed_epoch", data_transfer_protocol=protocol
    )
    with distributed.iterator() as elements:
        warm = time.monotonic() + WARM_UP_SECONDS + WARM_UP_SECONDS_PER_WORKER * len(workers)
        while time.monotonic() < warm:
            next(elements)
        groups = workers, [os.getpid()]
        before = [cpu_seconds(group) for group in groups]
        began = time.monotonic()
        count = 0
        while (now := time.monotonic()) < began + seconds:
            next(elements)
            count += 1
        used = [cpu_seconds(group) - cpu for group, cpu in zip(groups, before, strict=True)]
    return Waited(count / (now - began), *(1e6 * each / count for each in used))


def measure_row(workers: int, protocol: str, seconds: float) -> Figure:
    """Return the rate, and the CPU time per element of both sides."""
    with served(workers) as service:
        waited = read(service["target"], service["workers"], seconds, protocol)
    return Figure(waited.rate, cpu=waited.worker + waited.trainer)


def comparison_rows() -> Iterable[Row]:
    """Return the rows for `compare.py`."""
    for workers, protocol in ((1, "tcp"), (1, "shm"), (16, "tcp"), (64, "tcp"), (128, "tcp")):
        name = f"waiting/{workers}/{protocol}"
        measure = partial(measure_row, workers, protocol)
        yield Row(name, measure, seconds=3.0, default=workers == 1)


def main() -> None:
    """Print the table, or run the server's process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 4, 16, 64, 128])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--protocol", default="tcp")
    parser.add_argument("--serve", type=int, metavar="WORKERS")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    print(f"{machine()}; elements that take {1000 * WAIT_SECONDS:g} ms, {options.protocol}")
    print("| workers | elements/s | of what waiting allows | worker, us | trainer, us | idle, % |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for workers in options.workers:
        with served(workers) as service:
            idle = idle_share(service["workers"])
            waited = read(service["target"], service["workers"], options.seconds, options.protocol)
        part = waited.rate * WAIT_SECONDS / workers
        print(
            f"| {workers} | {waited.rate:,.0f} | {part:.2f} | {waited.worker:.0f} | "
            f"{waited.trainer:.0f} | {100 * idle:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
