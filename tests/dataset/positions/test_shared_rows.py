"""Rows of tables at any positions, drawn in blocks and drawn again from copies."""

import random
import threading
import time
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import stoker
from stoker import Dataset
from stoker.dataset.positions import stream_copies
from stoker.dataset.positions.position_stream import open_positions
from stoker.dataset.positions.shared_rows import BLOCK, SharedRows
from stoker.dataset.streams.rows.row_numbers import RowNumbers, as_array
from stoker.dataset.tree.node import Context, number

COUNT = 1_000_000


def context_of(dataset: Dataset) -> Context:
    return Context(seed=3, epoch=(1,), numbers=number(dataset.node))


def rows_of(dataset: Dataset) -> SharedRows:
    rows = SharedRows()
    rows.begin(dataset.node, context_of(dataset))
    return rows


def all_rows(dataset: Dataset) -> list[Any]:
    """The columns of the table, read in order."""
    context = context_of(dataset)
    stream = replace(context, as_rows=True).open(dataset.node)
    chunks = list(iter(lambda: stream.next_chunk(1 << 16, 1 << 40) or None, None))
    columns = zip(*(chunk.columns for chunk in chunks), strict=True)  # type: ignore[attr-defined]
    return [np.concatenate([as_array(part) for part in column]) for column in columns]


def read(rows: SharedRows, positions: range) -> list[Any]:
    """The columns at these positions."""
    found: list[RowNumbers] = []
    while positions:
        found.append(rows.read(positions))
        positions = positions[len(found[-1]) :]
    columns = zip(*(each.columns for each in found), strict=True)
    return [np.concatenate([as_array(part) for part in column]) for column in columns]


NUMBERS = Dataset.range(COUNT)
TABLES = {
    "small buffer": NUMBERS.shuffle(1000),
    "whole": NUMBERS.shuffle(stoker.UNKNOWN_CARDINALITY),
    "repeated": Dataset.range(300_000).shuffle(5000).repeat(4),
    "zipped": Dataset.zip(NUMBERS.shuffle(100), NUMBERS.shuffle(40_000).enumerate()),
    "shuffled twice": NUMBERS.shuffle(100).shuffle(300_000).skip(1000).take(500_000),
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_read_in_any_order_equal_those_read_in_order(name):
    dataset = TABLES[name]
    expected = all_rows(dataset)
    rows = rows_of(dataset)
    count = len(expected[0])
    generator = random.Random(name)
    for _ in range(60):
        start = generator.randrange(count)
        step = generator.choice([1, 1, 2, 7, 300, BLOCK, 3 * BLOCK + 1])
        stop = min(count, start + step * generator.choice([1, 10, 3000]))
        positions = range(start, stop, step)
        for found, column in zip(read(rows, positions), expected, strict=True):
            assert np.array_equal(found, column[positions])


def test_threads_read_the_same_rows():
    dataset = TABLES["repeated"]
    expected = all_rows(dataset)[0]
    rows = rows_of(dataset)
    wrong: list[range] = []

    def read_some(seed: int) -> None:
        generator = random.Random(seed)
        for _ in range(40):
            start = generator.randrange(len(expected) - 5000)
            positions = range(start, start + 5000, generator.choice([1, 3]))
            if not np.array_equal(read(rows, positions)[0], expected[positions]):
                wrong.append(positions)

    threads = [threading.Thread(target=read_some, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_readers_of_one_epoch_share_what_they_draw(monkeypatch):
    dataset = Dataset.range(10 * BLOCK).shuffle(100).batch(32)
    drawn: list[int] = []
    read_block = SharedRows._read_block

    def noted(rows: SharedRows, block: int) -> RowNumbers:
        drawn.append(block)
        return read_block(rows, block)

    monkeypatch.setattr(SharedRows, "_read_block", noted)
    rows = SharedRows()
    for consumer in range(4):
        turns = iter([range(consumer, 2560, 4)])
        stream = open_positions(dataset.node, Context(seed=3), turns, rows)
        while stream.next_chunk(100, 1 << 20)[0]:
            pass
        stream.close()
    assert drawn == list(range(10))


def test_copies_are_bounded_in_number_and_bytes(monkeypatch):
    monkeypatch.setattr(stream_copies, "_FIRST_INTERVAL", 1)
    monkeypatch.setattr(stream_copies, "_MOST_COPIES", 10)
    monkeypatch.setattr(stream_copies, "_MOST_BYTES", 50_000)
    rows = rows_of(NUMBERS.shuffle(1000))
    read(rows, range(COUNT))
    copies = rows._copies
    assert sorted(copies._copies) == [0, 32, 64, 96]
    assert copies._bytes == sum(each.copy_bytes() for each in copies._copies.values()) == 32_000
    whole = rows_of(NUMBERS.shuffle(stoker.UNKNOWN_CARDINALITY))
    read(whole, range(COUNT))
    assert len(whole._copies._copies) <= 10
    assert whole._copies._bytes == 0


def test_a_copy_that_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(stream_copies, "_MOST_BYTES", 7000)
    rows = rows_of(NUMBERS.shuffle(1000))
    expected = read(rows, range(COUNT))[0]
    assert rows._copies._copies == {}
    assert np.array_equal(read(rows, range(100))[0], expected[:100])


@pytest.mark.alone
@pytest.mark.parametrize("size", [10_000, stoker.UNKNOWN_CARDINALITY])
def test_rows_are_drawn_again_within_50_ms(size):
    """At 10**7 rows as at 10**8, whose draws take minutes of a test run."""
    count = 10_000_000
    rows = rows_of(Dataset.range(count).shuffle(size))
    rows.read(range(1))
    began = time.perf_counter()
    rows.read(range(count - 100, count))
    assert time.perf_counter() - began < 100e-9 * count
    generator = random.Random(1)
    for _ in range(20):
        start = generator.randrange(count - 100)
        began = time.perf_counter()
        rows.read(range(start, start + 100))
        assert time.perf_counter() - began < 0.05
