"""Any cover of the positions by any streams, in any order, equals the local epoch."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker.dataset.positions import shared_rows, stream_copies
from stoker.dataset.positions.count import count_positions
from stoker.dataset.positions.counted import Counted
from stoker.dataset.positions.position_stream import PositionStream, open_positions
from stoker.dataset.positions.shared_rows import SharedRows
from stoker.dataset.tree.splits import ENDLESS
from tests.dataset.positions.counted_trees import (
    MOST,
    build,
    context_of,
    counted_trees,
    failed,
    local_tape,
    make_files,
)
from tests.dataset.trees import Tree, canonical

SLICES = 20
"""Parts of 100 trees; the first two run by default, all in the slow lane."""

_settings = settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        make_files(Path(name))
        yield Path(name)


@st.composite
def covers(draw: st.DrawFn) -> list[list[list[tuple[int, int, int]]]]:
    """Streams that are opened at a time, each with the fields of its turns, for any length.

    A turn is (start, stop, step) in parts of 1,000 of the positions, but for the step.
    """
    turn = st.tuples(st.integers(0, 999), st.integers(0, 1000), st.sampled_from([1, 1, 1, 2, 3, 7]))
    return draw(st.lists(st.lists(st.lists(turn, max_size=6), max_size=3), max_size=3))


def turns_of(cover: list[list[list[tuple[int, int, int]]]], count: int) -> list[list[list[range]]]:
    """The turns of each stream, and at the end a stream of all that no turn has."""

    def scaled(start: int, stop: int, step: int) -> range:
        first = start * count // 1000
        return range(first, max(first, stop * count // 1000), step)

    rounds = [[[scaled(*turn) for turn in turns] for turns in streams] for streams in cover]
    asked = {position for streams in rounds for turns in streams for t in turns for position in t}
    missing = [range(position, position + 1) for position in range(count) if position not in asked]
    return [*rounds, [missing]]


def read_some(stream: PositionStream, most: int, tape: list[Any]) -> int:
    """Compare a chunk or an error with the local epoch; return the number of positions."""
    try:
        positions, elements = stream.next_chunk(most, 1 << 20)
    except Exception as error:
        positions, elements = range(stream.position, stream.position + 1), [error]
    for position, element in zip(positions, elements, strict=True):
        found = failed(element) if isinstance(element, Exception) else canonical(element)
        assert found == tape[position], f"position {position}"
    return len(positions)


@pytest.mark.parametrize(
    "part",
    [pytest.param(i, marks=pytest.mark.slow if i >= 2 else ()) for i in range(SLICES)],
)
def test_any_cover_equals_the_local_epoch(folder: Path, part: int) -> None:
    @_settings
    @given(
        tree=counted_trees(),
        cover=covers(),
        most=st.integers(1, 9),
        epoch=st.sampled_from([0, 2]),
        seed=st.sampled_from([None, 7]),
        shared=st.booleans(),
        block=st.sampled_from([1, 3, shared_rows.BLOCK]),
    )
    def check(
        tree: Tree, cover: Any, most: int, epoch: int, seed: int | None, shared: bool, block: int
    ) -> None:
        dataset = build(tree, folder, seed)
        counted = count_positions(dataset.node)
        assert isinstance(counted, Counted), counted
        tape = local_tape(dataset, epoch)
        if counted.length >= MOST:
            assert counted.length == ENDLESS or len(tape) == MOST
        else:
            assert counted.length == len(tape)
        rows = SharedRows() if shared else None
        with small_tables(block):
            for streams in turns_of(cover, len(tape)):
                check_streams(dataset, epoch, tape, streams, most, rows)

    check()


@contextmanager
def small_tables(block: int) -> Iterator[None]:
    """Let tables of a few rows have many blocks, few of which are kept, and many copies."""
    patched = [
        mock.patch.object(shared_rows, "BLOCK", block),
        mock.patch.object(shared_rows, "_KEPT_BYTES", 64 * block),
        mock.patch.object(shared_rows, "_MOST_CURSORS", 2),
        mock.patch.object(stream_copies, "_FIRST_INTERVAL", 2),
        mock.patch.object(stream_copies, "_MOST_COPIES", 3),
    ]
    with ExitStack() as stack:
        for each in patched:
            stack.enter_context(each)
        yield


def check_streams(
    dataset: stoker.Dataset,
    epoch: int,
    tape: list[Any],
    streams: list[list[range]],
    most: int,
    rows: SharedRows | None,
) -> None:
    """Read streams in step."""
    context = context_of(dataset, epoch)
    opened = [open_positions(dataset.node, context, iter(turns), rows) for turns in streams]
    left = [sum(map(len, turns)) for turns in streams]
    try:
        while any(left):
            for i, stream in enumerate(opened):
                if left[i]:
                    read = read_some(stream, most, tape)
                    assert 0 < read <= left[i]
                    left[i] -= read
        for stream in opened:
            assert stream.next_chunk(3, 1 << 20) == (range(0), [])
    finally:
        for stream in opened:
            stream.close()
