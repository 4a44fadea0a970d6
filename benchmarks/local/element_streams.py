"""Streams read one element at a time by `for`: the cost of one `next` through each node."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
from harness import Figure, Row, loop_rate

import stoker

ENDLESS = 10**12

Build = Callable[[], stoker.Dataset]


def numbers() -> stoker.Dataset:
    """Return an endless range."""
    return stoker.Dataset.range(ENDLESS)


def tuples() -> Iterator[tuple[int, int]]:
    """Yield pairs of Python ints for ever."""
    number = 0
    while True:
        yield number, number + 1
        number += 1


def chain() -> stoker.Dataset:
    """Return a pipeline of six cheap nodes."""
    pipeline = numbers().skip(5).shard(2, 1).take(ENDLESS).enumerate()
    return pipeline.map(lambda index, number: index + number).filter(lambda number: number >= 0)


STREAMS: dict[str, Build] = {
    "range": numbers,
    "take": lambda: numbers().take(ENDLESS),
    "skip": lambda: numbers().skip(1),
    "enumerate": lambda: numbers().enumerate(),
    "shard": lambda: numbers().shard(2, 1),
    "zip": lambda: stoker.Dataset.zip(numbers(), numbers()),
    "concatenate": lambda: stoker.Dataset.range(1).concatenate(numbers()),
    "repeat": lambda: stoker.Dataset.range(100).repeat(),
    "map": lambda: numbers().map(lambda number: number),
    "filter": lambda: numbers().filter(lambda number: number % 2 == 0),
    "take-while": lambda: numbers().take_while(lambda number: number >= 0),
    "scan": lambda: numbers().scan(0, lambda state, number: (state + 1, number)),
    "flat-map": lambda: numbers().flat_map(lambda _: stoker.Dataset.range(100)),
    "interleave": lambda: numbers().interleave(
        lambda _: stoker.Dataset.range(100), cycle_length=4, block_length=1
    ),
    "shuffle": lambda: numbers().shuffle(1000),
    "batch": lambda: numbers().batch(4),
    "unbatch": lambda: numbers().batch(128).unbatch(),
    "window": lambda: numbers().window(4).flat_map(lambda window: window),
    "cache": lambda: stoker.Dataset.range(1000).cache().repeat(),
    "prefetch": lambda: numbers().prefetch(64),
    "slices": lambda: stoker.Dataset.from_tensor_slices(np.arange(10_000)).repeat(),
    "generator": lambda: stoker.Dataset.from_generator(tuples),
    "sample": lambda: stoker.Dataset.sample_from_datasets([numbers(), numbers()], [0.5, 0.5]),
    "chain": chain,
}


def measure(build: Build, seconds: float) -> Figure:
    """Return elements per second of one stream."""
    return loop_rate(build(), seconds)


def comparison_rows() -> Iterable[Row]:
    """Return a row for every stream."""
    for name, build in STREAMS.items():
        yield Row(f"elements/{name}", partial(measure, build), seconds=0.3)
