"""What the benchmarks share: systems measured in turn, in one run, and medians of what they did."""

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

Figure = TypeVar("Figure")


def interleaved(
    systems: Mapping[str, Callable[[], Figure]], rounds: int
) -> dict[str, list[Figure]]:
    """What each system measured, once a round: a machine that slows down slows all of them.

    Args:
        systems: by name; each call makes one measurement.
        rounds: how many measurements of each. Every round begins with another system.
    """
    names = list(systems)
    measured: dict[str, list[Figure]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            measured[name].append(systems[name]())
    return measured


def rate(elements: Iterable[object], seconds: float, weigh: Callable[[object], int]) -> float:
    """Elements a second over about `seconds`, from before the first is asked for.

    Args:
        elements: read from the beginning, and closed when the time is up if it can be.
        seconds: how long to read.
        weigh: how many elements one that was read counts for: the size of a batch.
    """
    began = time.perf_counter()
    now = began
    seen = 0
    iterator = iter(elements)
    for element in iterator:
        seen += weigh(element)
        now = time.perf_counter()
        if now - began >= seconds:
            break
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
    return seen / (now - began)


def environment() -> dict[str, str]:
    """That of every measured process."""
    return {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        # Decoders and resizers run on the threads that are measured, and on no others.
        "OMP_NUM_THREADS": "1",
    }


def in_fresh_process(script: str, *words: str) -> float:
    """The number that ``python script words...`` prints last: no system warms another."""
    result = subprocess.run(
        [sys.executable, script, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    if result.returncode:
        raise RuntimeError(f"{Path(script).name} {' '.join(words)} failed:\n{result.stderr}")
    return float(result.stdout.split()[-1])


def median(values: Iterable[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def machine() -> str:
    """One line that says where a table was measured."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
