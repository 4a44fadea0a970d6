"""AUTOTUNE against every fixed number of parallel calls, on six pipelines.

    python benchmarks/bench_autotune.py [--rounds 3] [--only JPEG ...] [--settings 2 ...]

Each measurement is a fresh process that opens the pipeline and reads it for some seconds. The time
that AUTOTUNE takes to find its settings counts, and no setting inherits another's memory. All
settings of a pipeline are measured in turn, round by round. The ratio is AUTOTUNE's median rate
divided by the best median of the fixed settings.
"""

import argparse
import time
import zlib
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import Figure, Row, in_fresh_process, interleaved, machine, median, rate, slug

import stoker

FIXED = (None, 1, 2, 4, 8, 16, 32, 64)
ENDLESS = 10**12


class Pipeline(NamedTuple):
    """One row of the table.

    Attributes:
        build: takes the number of parallel calls; returns an endless dataset.
        weigh: the number of elements that one item counts for.
    """

    build: Callable[[int | None], stoker.Dataset]
    weigh: Callable[[Any], int]


def cheap(calls: int | None) -> stoker.Dataset:
    """Return a map that costs less than starting it on a thread, in batches."""
    return stoker.Dataset.range(ENDLESS).map(lambda x: x * x, calls).batch(128)


@cache
def photos() -> list[bytes]:
    """Return 256 JPEG files of 500 x 375, as expensive to decode as photographs."""
    import bench_jpeg

    return [Path(path).read_bytes() for path in bench_jpeg.photos()[:256]]


def decode(calls: int | None) -> stoker.Dataset:
    """Return JPEG decoding with scaling, which releases the GIL."""
    import io

    from PIL import Image

    files = photos()

    def load(number: int) -> np.ndarray[Any, Any]:
        with Image.open(io.BytesIO(files[number % len(files)])) as photo:
            return np.asarray(photo.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR))

    return stoker.Dataset.range(ENDLESS).map(load, calls).batch(32)


def slow_io(calls: int | None) -> stoker.Dataset:
    """Return a map that waits 10 ms per element, as a nearby object store takes."""

    def fetch(number: int) -> int:
        time.sleep(10e-3)
        return number

    return stoker.Dataset.range(ENDLESS).map(fetch, calls)


@cache
def packed() -> tuple[bytes, bytes]:
    """Return two compressed blocks; the second takes 50 times as long to unpack."""
    block = np.random.default_rng(0).integers(0, 16, 24_000, dtype=np.uint8).tobytes()
    return zlib.compress(block), zlib.compress(block * 50)


def skewed(calls: int | None) -> stoker.Dataset:
    """Return decompression, where one element in 20 takes 50 times as long; releases the GIL."""
    small, large = packed()
    rng = np.random.default_rng(1)
    is_large = (rng.random(4096) < 1 / 20).tolist()

    def unpack(number: int) -> int:
        return len(zlib.decompress(large if is_large[number % 4096] else small))

    return stoker.Dataset.range(ENDLESS).map(unpack, calls)


def skewed_io(calls: int | None) -> stoker.Dataset:
    """Return a map that waits 1 ms per element, and 50 ms for one element in 20."""
    is_slow = (np.random.default_rng(1).random(4096) < 1 / 20).tolist()

    def fetch(number: int) -> int:
        time.sleep(50e-3 if is_slow[number % 4096] else 1e-3)
        return number

    return stoker.Dataset.range(ENDLESS).map(fetch, calls)


def memory_heavy(calls: int | None) -> stoker.Dataset:
    """Return results of 8 MB each, made by NumPy; the byte budget limits how many are buffered."""

    def widen(number: int) -> np.ndarray[Any, Any]:
        values = np.full(1_000_000, number, np.float64)
        np.sqrt(values, out=values)
        return np.add(values, 1.0, out=values)

    return stoker.Dataset.range(ENDLESS).map(widen, calls)


def one(_: object) -> int:
    """Count an element as one."""
    return 1


PIPELINES = {
    "cheap map, batch 128": Pipeline(cheap, len),
    "JPEG decoding, batch 32": Pipeline(decode, len),
    "slow I/O, 10 ms": Pipeline(slow_io, one),
    "skewed decoding, 1 in 20 x 50": Pipeline(skewed, one),
    "skewed I/O, 1 in 20 x 50": Pipeline(skewed_io, one),
    "memory-heavy, 8 MB": Pipeline(memory_heavy, one),
}


SETTINGS = {str(calls): calls for calls in FIXED} | {"AUTOTUNE": stoker.AUTOTUNE}


def measure(name: str, label: str, seconds: float) -> Figure:
    """Return elements per second of a pipeline with one setting, from `iter()` on."""
    pipeline = PIPELINES[name]
    return rate(pipeline.build(SETTINGS[label]), seconds, pipeline.weigh)


def comparison_rows() -> Iterable[Row]:
    """Return a row for every pipeline and setting; AUTOTUNE's are measured by default."""
    for name in PIPELINES:
        for label in SETTINGS:
            yield Row(
                f"autotune/{slug(name.split(',')[0])}/{label}",
                partial(measure, name, label),
                seconds=1.5,
                prepare=photos if name.startswith("JPEG") else None,
                default=label == "AUTOTUNE",
            )


def compare(name: str, settings: list[str], rounds: int, seconds: float) -> str:
    """Measure one pipeline with all settings; return its line of the table."""
    systems = {
        label: partial(in_fresh_process, __file__, "--measure", name, label, str(seconds))
        for label in settings
    }
    medians = {label: median(values) for label, values in interleaved(systems, rounds).items()}
    tuned = medians.pop("AUTOTUNE")
    best = max(medians, key=medians.__getitem__)
    figures = "".join(f"{value:>11,.0f}" for value in (*medians.values(), tuned))
    return f"{name:30}{figures}   {tuned / medians[best]:.2f} of {best}"


def main() -> None:
    """Measure and print the table, or one setting in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the pipelines' names")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--measure", nargs=3, metavar=("PIPELINE", "CALLS", "SECONDS"))
    options = parser.parse_args()
    if options.measure:
        name, label, seconds = options.measure
        print(measure(name, label, float(seconds)).value)
        return
    photos()
    print(machine())
    print(f"elements/s, medians of {options.rounds} rounds of {options.seconds:g} s in one run")
    settings = [label for label in options.settings if label != "AUTOTUNE"] + ["AUTOTUNE"]
    print(f"{'num_parallel_calls':30}{''.join(f'{label:>11}' for label in settings)}   ratio")
    for name in PIPELINES:
        if any(word in name for word in options.only):
            print(compare(name, settings, options.rounds, options.seconds), flush=True)


if __name__ == "__main__":
    main()
