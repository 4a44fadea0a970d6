"""Scalars through one worker process, counted in another: stoker and tf.data service in turn.

    python benchmarks/bench_scalars.py [--pairs 5]

Both run dispatcher and worker in one server process and read in a second one, uncompressed, over
`range(n)` with OFF sharding. Each pair measures stoker, then tf.data service, in fresh processes.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable


def serve_stoker() -> None:
    """A dispatcher and a worker until stdin ends; prints the target."""
    from stoker.service import DispatchServer, WorkerServer

    with DispatchServer() as dispatcher, WorkerServer(dispatcher_address=dispatcher.target):
        print(dispatcher.target, flush=True)
        sys.stdin.read()


def read_stoker(target: str, count: int) -> int:
    """Reads a whole epoch; returns how many elements came."""
    import stoker

    dataset = stoker.Dataset.range(count)
    return _count(dataset.distribute(target, processing_mode="parallel_epochs", compression=None))


def serve_tensorflow() -> None:
    """The same of tf.data service."""
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    print(dispatcher.target, flush=True)
    sys.stdin.read()
    del worker


def read_tensorflow(target: str, count: int) -> int:
    """The same of tf.data service."""
    import tensorflow as tf

    distribute = tf.data.experimental.service.distribute
    dataset = tf.data.Dataset.range(count)
    dataset = dataset.apply(distribute("parallel_epochs", target, compression=None))
    return _count(dataset.as_numpy_iterator())


def _count(elements: object) -> int:
    return sum(1 for _ in elements)  # type: ignore[attr-defined]


SERVERS: dict[str, Callable[[], None]] = {"stoker": serve_stoker, "tensorflow": serve_tensorflow}
READERS = {"stoker": read_stoker, "tensorflow": read_tensorflow}


def _command(*words: str) -> list[str]:
    return [sys.executable, __file__, *words]


def measure(system: str, count: int) -> float:
    """Elements a second, from the first `next` to the end, in fresh processes."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(
        _command("--serve", system),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as server:
        assert server.stdout is not None
        target = server.stdout.readline().strip()
        try:
            result = subprocess.run(
                _command("--read", system, target, str(count)),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
                env=environment,
            )
        finally:
            server.kill()
    return float(result.stdout)


def read(system: str, target: str, count: int) -> float:
    """One warm pass, then the measured one."""
    READERS[system](target, 1_000)
    began = time.perf_counter()
    seen = READERS[system](target, count)
    seconds = time.perf_counter() - began
    assert seen == count, f"{seen} of {count} elements"
    return count / seconds


def main() -> None:
    """Compares; or, called by itself, serves or reads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--stoker-count", type=int, default=10**7)
    parser.add_argument("--tensorflow-count", type=int, default=20_000)
    parser.add_argument("--serve", choices=SERVERS)
    parser.add_argument("--read", nargs=3, metavar=("SYSTEM", "TARGET", "COUNT"))
    options = parser.parse_args()
    if options.serve:
        SERVERS[options.serve]()
    elif options.read:
        system, target, count = options.read
        print(read(system, target, int(count)))
    else:
        compare(options.pairs, options.stoker_count, options.tensorflow_count)


def compare(pairs: int, stoker_count: int, tensorflow_count: int) -> None:
    """Runs the pairs and prints the table."""
    rates = [
        (measure("stoker", stoker_count), measure("tensorflow", tensorflow_count))
        for _ in range(pairs)
    ]
    ours, theirs = (statistics.median(column) for column in zip(*rates, strict=True))
    ratios = [a / b for a, b in rates]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"medians of {pairs} pairs in one run")
    print(f"{'':34}{'stoker':>12}{'tf.data service':>18}{'ratio':>8}{'least':>8}")
    print(
        f"{'scalars, one worker, elements/s':34}{ours:>12,.0f}{theirs:>18,.0f}"
        f"{statistics.median(ratios):>8,.0f}{min(ratios):>8,.0f}"
    )


if __name__ == "__main__":
    main()
