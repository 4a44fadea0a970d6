"""Elements written to files and read again: `cache(filename)`, `snapshot`, `save` and `load`.

Files lie in memory (/dev/shm) where there is such a folder: the code is measured, not the disk.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from harness import Figure, Row, loop_rate, rate

import stoker

MEMORY = Path("/dev/shm")


class Elements(NamedTuple):
    """A dataset to store, of `count` elements."""

    count: int
    build: Callable[[], stoker.Dataset]


ELEMENTS = {
    "scalars": Elements(50_000, lambda: stoker.Dataset.range(50_000)),
    "kilobytes": Elements(
        5_000, lambda: stoker.Dataset.range(5_000).map(lambda number: np.full(128, number))
    ),
}


def cached(dataset: stoker.Dataset, folder: Path) -> stoker.Dataset:
    """Store with `cache`; return the dataset that reads it."""
    stored = dataset.cache(folder / "cache")
    _exhaust(stored)
    return stored


def snapshotted(dataset: stoker.Dataset, folder: Path) -> stoker.Dataset:
    """Store with `snapshot`; return the dataset that reads it."""
    stored = dataset.snapshot(folder)
    _exhaust(stored)
    return stored


def saved(dataset: stoker.Dataset, folder: Path) -> stoker.Dataset:
    """Store with `save`; return the dataset that reads it."""
    dataset.save(folder)
    return stoker.Dataset.load(folder)


def _exhaust(dataset: stoker.Dataset) -> None:
    for _ in dataset:
        pass


WAYS = {"cache": cached, "snapshot": snapshotted, "save": saved}

Store = Callable[[stoker.Dataset, Path], stoker.Dataset]


def measure_write(store: Store, elements: Elements, seconds: float) -> Figure:
    """Return elements per second of whole epochs that are written, each to a fresh folder."""

    def epochs() -> Iterator[int]:
        while True:
            folder = Path(root, "epoch")
            folder.mkdir()
            store(elements.build(), folder)
            yield elements.count
            shutil.rmtree(folder)

    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as root:
        return rate(epochs(), seconds, int)


def measure_read(store: Store, elements: Elements, seconds: float) -> Figure:
    """Return elements per second of stored elements, read one by one by `for`."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as root:
        return loop_rate(store(elements.build(), Path(root)).repeat(), seconds)


def comparison_rows() -> Iterable[Row]:
    """Return a row for writing and one for reading, for each way and kind of elements."""
    for way, store in WAYS.items():
        for kind, elements in ELEMENTS.items():
            reading = "load" if way == "save" else f"{way}/read"
            writing = "save" if way == "save" else f"{way}/write"
            yield Row(f"stored/{writing}/{kind}", partial(measure_write, store, elements), 0.5)
            yield Row(f"stored/{reading}/{kind}", partial(measure_read, store, elements), 0.5)
