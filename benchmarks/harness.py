"""Shared by all benchmarks: figures, systems measured in turn within one run, and medians."""

import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeVar

Result = TypeVar("Result")

BURST_SECONDS = 0.01


@dataclass(frozen=True)
class Figure:
    """One measurement of one system.

    Attributes:
        value: elements per second, a time, or a part of the rate that other workers allow.
        unit: of the value.
        cpu: CPU microseconds per element (or per timed call), summed over all measured processes;
            nan where it is unknown.
    """

    value: float
    unit: Literal["/s", "ms", "µs", "ns", "of others"] = "/s"
    cpu: float = math.nan


@dataclass(frozen=True)
class Row:
    """A measurement of stoker alone, which `compare.py` runs against two checkouts.

    Attributes:
        name: "group/name", unique; the group is a key of `rows.GROUPS`.
        measure: takes the seconds to measure for, in a fresh process.
        seconds: measuring time relative to other rows.
        prepare: makes the files that the row reads and that both checkouts share.
        default: measured when no row is named.
    """

    name: str
    measure: Callable[[float], Figure]
    seconds: float = 1.0
    prepare: Callable[[], object] | None = None
    default: bool = True


def slug(text: str) -> str:
    """Return `text` as part of a row's name: letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def interleaved(
    systems: Mapping[str, Callable[[], Result]], rounds: int
) -> dict[str, list[Result]]:
    """Measure each system once per round, so that a machine that slows down slows all of them.

    Args:
        systems: by name; each call makes one measurement.
        rounds: measurements of each system. Every round begins with another system.
    """
    names = list(systems)
    measured: dict[str, list[Result]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            measured[name].append(systems[name]())
    return measured


def rate(
    elements: Iterable[Any], seconds: float, weigh: Callable[[Any], int] = lambda _: 1
) -> Figure:
    """Return elements per second over about `seconds`, counted from before the first request.

    Args:
        elements: read from the beginning, and closed when the time is up if it has `close`.
        seconds: how long to read.
        weigh: the number of elements that one item counts for: the size of a batch.
    """
    cpu = time.process_time()
    began = now = time.perf_counter()
    count = 0
    iterator = iter(elements)
    for element in iterator:
        count += weigh(element)
        now = time.perf_counter()
        if now - began >= seconds:
            break
    cpu = time.process_time() - cpu
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
    return Figure(count / (now - began), cpu=cpu / count * 1e6)


def warm_rate(
    elements: Iterable[Any],
    seconds: float,
    weigh: Callable[[Any], int] = lambda _: 1,
    warm_seconds: float = 1.0,
) -> Figure:
    """Return the `rate` that follows `warm_seconds` of reading from the same iterator."""
    iterator = iter(elements)
    rate(_kept_open(iterator), warm_seconds, weigh)
    return rate(_kept_open(iterator), seconds, weigh)


def _kept_open(iterator: Iterator[Any]) -> Iterable[Any]:
    for element in iterator:  # noqa: UP028 - `yield from` would close it
        yield element


def loop_rate(elements: Iterable[Any], seconds: float) -> Figure:
    """Return elements per second of a plain `for` loop, after a fifth of the time to warm up.

    Args:
        elements: endless.
        seconds: how long to read.
    """
    iterator = iter(elements)
    read_for(iterator, seconds / 5)
    cpu = time.process_time()
    count, elapsed = read_for(iterator, seconds)
    return Figure(count / elapsed, cpu=(time.process_time() - cpu) / count * 1e6)


def read_for(
    iterator: Iterator[Any], seconds: float, read: Callable[[Any], Any] | None = None
) -> tuple[int, float]:
    """Read an endless iterator for about `seconds`; return elements read and seconds elapsed.

    A plain loop, as users write it; the clock is read between bursts of about 10 ms.
    """
    count, burst = 0, 1
    began = now = time.perf_counter()
    while now - began < seconds:
        before = now
        if read is None:
            for _ in islice(iterator, burst):
                pass
        else:
            for element in islice(iterator, burst):
                read(element)
        count += burst
        now = time.perf_counter()
        if now - before < BURST_SECONDS:
            burst *= 2
    return count, now - began


def repeated(measure: Callable[[], float], seconds: float) -> Figure:
    """Return the median of the milliseconds that `measure` returns, called for `seconds`.

    The first call is not counted.
    """
    measure()
    values = []
    cpu = time.process_time()
    began = time.perf_counter()
    while not values or time.perf_counter() - began < seconds:
        values.append(measure())
    cpu = time.process_time() - cpu
    return Figure(median(values), "ms", cpu / len(values) * 1e6)


def environment() -> dict[str, str]:
    """Return the environment of every measured process."""
    return {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        # Decoders and resizers run on the threads that are measured, and on no others.
        "OMP_NUM_THREADS": "1",
    }


def output_of(script: str, *words: str, seconds: float | None = None, **variables: str) -> str:
    """Return the last line that ``python script words...`` prints, in a fresh process.

    Args:
        script: the file to run.
        words: its arguments.
        seconds: how long it may take; ``None``: any time.
        variables: added to `environment`.

    Raises:
        RuntimeError: if it fails or takes longer; with the last line of its error output.
    """
    command = [sys.executable, script, *words]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment() | variables,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result within {seconds:g} s") from None
    if result.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{result.stderr}")
    return result.stdout.strip().splitlines()[-1]


def in_fresh_process(script: str, *words: str) -> float:
    """Return the number that ``python script words...`` prints last: no system warms another."""
    return float(output_of(script, *words).split()[-1])


def median(values: Iterable[float]) -> float:
    """Return the middle value."""
    return statistics.median(values)


def machine() -> str:
    """Describe the machine in one line."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
