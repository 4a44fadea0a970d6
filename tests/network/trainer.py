"""A trainer in this process: `python -m tests.network.trainer OPTIONS` reads one epoch.

OPTIONS are the fields of `Options` in JSON. It prints "received N" for every tenth element, and in
the end "result ..." with the fields of `Result` in JSON.
"""

import dataclasses
import json
import logging
import sys
import time
from functools import partial
from typing import Any

import numpy as np

import stoker
from stoker.errors import StokerError


@dataclasses.dataclass(frozen=True)
class Options:
    """What to read.

    Attributes:
        dispatcher: its address.
        elements: the number of elements.
        size: bytes of each, at least 8.
        seconds: the time that a worker computes one.
        step: the time that the trainer works on one.
        protocol: `data_transfer_protocol`.
        connect_timeout: seconds to wait for the dispatcher.
    """

    dispatcher: str
    elements: int = 100
    size: int = 1000
    seconds: float = 0.0
    step: float = 0.0
    protocol: str | None = None
    connect_timeout: float = 15.0


@dataclasses.dataclass(frozen=True)
class Result:
    """What was read.

    Attributes:
        elements: the numbers of the elements, sorted.
        lost: the number of lost elements and splits, as an upper bound.
        longest_pause: the longest time between two elements, in seconds.
        mb_per_second: from the first element to the last.
        waited: the fraction of this time that the trainer waited.
        shared_memory_bytes: bytes of workers' memory that it used.
        error: the error that ended the epoch, or "".
    """

    elements: list[int]
    lost: int
    longest_pause: float
    mb_per_second: float
    waited: float
    shared_memory_bytes: int
    error: str


def _element(seconds: float, noise: Any, number: int) -> Any:
    time.sleep(seconds)
    found = noise.copy()
    found[0] = number
    return found


def read(options: Options) -> Result:
    """Read one epoch."""
    # Not compressible: the network carries all of it.
    noise = np.random.default_rng(0).integers(0, 1 << 62, options.size // 8)
    element = partial(_element, options.seconds, noise)
    dataset = (
        stoker.Dataset.range(options.elements)
        .map(element)
        .distribute(
            options.dispatcher,
            processing_mode="distributed_epoch",
            data_transfer_protocol=options.protocol,
            connect_timeout=options.connect_timeout,
        )
    )
    elements: list[int] = []
    pauses = [0.0]
    shared, error = 0, ""
    with dataset.iterator() as iterator:
        began = asked = time.monotonic()
        try:
            for element in iterator:
                now = time.monotonic()
                if elements:
                    pauses.append(now - asked)
                else:
                    began = now
                elements.append(int(element[0]))
                if len(elements) % 10 == 0:
                    shared = max(shared, iterator.stats()["shared_memory_bytes"])
                    print(f"received {len(elements)}", flush=True)
                time.sleep(options.step)
                asked = time.monotonic()
        except StokerError as caught:
            error = f"{type(caught).__name__}: {caught}"
        stats = iterator.stats()
        elapsed = max(1e-9, asked - began)
        return Result(
            sorted(elements),
            stats.get("elements_lost", 0) + stats.get("splits_lost", 0),
            max(pauses),
            (len(elements) - 1) * options.size / 1e6 / elapsed,
            sum(pauses) / elapsed,
            shared,
            error,
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("stoker.client").setLevel(logging.DEBUG)
    result = read(Options(**json.loads(sys.argv[1])))
    print("result", json.dumps(dataclasses.asdict(result)), flush=True)
