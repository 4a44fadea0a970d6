"""Trainers that share elements by a cross-trainer cache, beside tf.data service's.

One worker computes arrays of 256 KB, about 0.3 ms each; 1, 2 and 4 trainer processes of one
job read them, with a cache and, for comparison, each a job of its own. Prints the elements per
second of all trainers together. ``python benchmarks/bench_cache.py --rounds 3 --seconds 2``
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

SIDE = 256
COSINES = 10
"""Calls per element. Products of matrices would measure the threads of BLAS."""

WARM_ELEMENTS = 20
TRAINERS = (1, 2, 4)


def _serve_stoker() -> None:
    import stoker

    with stoker.LocalCluster(1) as cluster:
        print(cluster.target, flush=True)
        sys.stdin.read()


def _serve_tensorflow() -> None:
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    print(dispatcher.target, flush=True)
    sys.stdin.read()
    del worker


def _read_stoker(target: str, job: str, trainer: str) -> Iterator[Any]:
    import stoker
    from stoker.service import CrossTrainerCache

    def compute(k: int) -> np.ndarray[Any, Any]:
        values = np.full((SIDE, SIDE), k % 7, np.float32)
        for _ in range(COSINES):
            values = np.cos(values)
        return values

    dataset = stoker.Dataset.range(10**9).repeat().map(compute)
    cache = CrossTrainerCache(trainer) if trainer else None
    return dataset.distribute(
        target, processing_mode="parallel_epochs", job_name=job, cross_trainer_cache=cache
    ).iterator()


def _read_tensorflow(target: str, job: str, trainer: str) -> Iterator[Any]:
    import tensorflow as tf

    def compute(k: Any) -> Any:
        values = tf.fill((SIDE, SIDE), tf.cast(k % 7, tf.float32))
        for _ in range(COSINES):
            values = tf.cos(values)
        return values

    service = tf.data.experimental.service
    cache = service.CrossTrainerCache(trainer) if trainer else None
    dataset = tf.data.Dataset.range(10**9).repeat().map(compute)
    return dataset.apply(
        service.distribute(
            service.ShardingPolicy.OFF,
            target,
            job_name=job,
            compression=None,
            cross_trainer_cache=cache,
        )
    ).as_numpy_iterator()


SERVERS: dict[str, Callable[[], None]] = {
    "stoker": _serve_stoker,
    "tf.data service": _serve_tensorflow,
}
READERS: dict[str, Callable[[str, str, str], Iterator[Any]]] = {
    "stoker": _read_stoker,
    "tf.data service": _read_tensorflow,
}


def _train(system: str, target: str, job: str, trainer: str, seconds: float) -> None:
    """Read for some seconds after a line on stdin; print the elements per second."""
    iterator = READERS[system](target, job, trainer)
    for _ in islice(iterator, WARM_ELEMENTS):
        pass
    print("warm", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    count = 0
    while (now := time.monotonic()) < began + seconds:
        next(iterator)[0, 0]
        count += 1
    print(count / (now - began), flush=True)


def _start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def measure(system: str, trainers: int, seconds: float, *, cached: bool) -> float:
    """Return the elements per second of all trainers together, which read at the same time."""
    server = _start("--serve", system)
    target = _line(server)
    readers = [
        _start(
            "--train",
            json.dumps([system, target, "job" if cached else f"job {k}", f"{k}" * cached, seconds]),
        )
        for k in range(trainers)
    ]
    try:
        for reader in readers:
            _line(reader)
        for reader in readers:
            assert reader.stdin is not None
            reader.stdin.write("go\n")
            reader.stdin.flush()
        return sum(float(_line(reader)) for reader in readers)
    finally:
        for process in (*readers, server):
            process.kill()
            process.wait()


def main() -> None:
    """Print a row for each number of trainers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--serve", choices=SERVERS)
    parser.add_argument("--train")
    args = parser.parse_args()
    if args.serve is not None:
        SERVERS[args.serve]()
        return
    if args.train is not None:
        _train(*json.loads(args.train))
        return
    figures: dict[tuple[int, str, bool], list[float]] = defaultdict(list)
    for _ in range(args.rounds):
        for trainers in TRAINERS:
            for system in SERVERS:
                for cached in (True, False):
                    rate = measure(system, trainers, args.seconds, cached=cached)
                    figures[trainers, system, cached].append(rate)
    print("| trainers | " + " | ".join(f"{x}, cache | own jobs" for x in SERVERS) + " |")
    print("| --- |" + " --- |" * 2 * len(SERVERS))
    for trainers in TRAINERS:
        cells = [
            f"{statistics.median(figures[trainers, system, cached]):,.0f}"
            for system in SERVERS
            for cached in (True, False)
        ]
        print(f"| {trainers} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
