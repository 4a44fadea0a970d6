"""Random trees over all nodes: however a stream is read, it is the same stream."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker.dataset.nodes.repeat import Repeat
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Node, number, registry
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from tests.dataset.trees import (
    POSITIONS,
    TREES,
    Tree,
    build,
    canonical,
    failed,
    make_files,
    opened,
    positions,
    tape_of,
)

_READS = st.lists(
    st.one_of(
        st.tuples(st.just("next"), st.just(1), st.just(0)),
        st.tuples(st.just("advance"), st.integers(0, 25), st.just(0)),
        st.tuples(st.just("chunk"), st.integers(1, 20), st.sampled_from([1, 100, 1 << 20])),
    ),
    max_size=12,
)


_ELSEWHERE = {
    "distribute": "needs a service: tests/conformance",
    "map_and_batch": "made by rewrite, in every tree that runs",
    "assert_cardinality": "fails where it is wrong",
    "elements": "in the datasets that window and group_by_window make",
    "encoded_names": "made by stoker.compat.tf",
    "moved_map": "made for positions and ranks: tests/dataset/positions",
    "shuffle_before_maps": "made for positions and ranks: tests/dataset/positions",
}
"""Kinds that no random tree holds, and why."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        make_files(Path(name))
        yield Path(name)


_settings = settings(
    deadline=None,
    max_examples=250,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_settings
@given(tree=TREES, n=st.integers(0, POSITIONS + 10))
def test_advance_then_reading_equals_reading_and_dropping(folder: Path, tree: Tree, n: int) -> None:
    tape = tape_of(tree, folder)
    ended = len(tape) < POSITIONS
    stream = opened(build(tree, folder))
    try:
        passed = stream.advance(n)
        if ended:
            assert passed == min(n, len(tape))
        elif n <= POSITIONS:
            assert passed == n
        assert positions(stream, len(tape) - n) == tape[n:]
        if ended:
            with pytest.raises(StopIteration):
                stream.next()
            assert stream.next_chunk(3, 1 << 20) == []
            assert stream.advance(2) == 0
    finally:
        stream.close()


@_settings
@given(tree=TREES, reads=_READS)
def test_all_verbs_read_the_same_stream(
    folder: Path, tree: Tree, reads: list[tuple[str, int, int]]
) -> None:
    tape = tape_of(tree, folder)
    ended = len(tape) < POSITIONS
    stream = opened(build(tree, folder))
    at = 0
    try:
        for verb, count, size in reads:
            if not ended and at + count > len(tape):
                break
            if verb == "advance":
                passed = stream.advance(count)
                assert passed == min(count, len(tape) - at)
                at += passed
            elif verb == "next":
                found = positions(stream, 1)
                assert found == tape[at : at + 1]
                at += len(found)
            else:
                found = chunk_of(stream, count, size)
                assert found == tape[at : at + len(found)]
                assert found or at == len(tape)
                at += len(found)
    finally:
        stream.close()


def chunk_of(stream: Stream, count: int, size: int) -> list[Any]:
    try:
        chunk = stream.next_chunk(count, size)
    except Exception as error:
        return [failed(error)]
    assert len(chunk) <= count
    return [canonical(element) for element in chunk]


@settings(_settings, max_examples=40)
@given(tree=TREES)
def test_a_full_cache_and_a_decoded_tree_read_the_same_stream(folder: Path, tree: Tree) -> None:
    dataset = build(tree, folder)
    decoded = stoker.Dataset(decode_tree(encode_tree(dataset.node)))
    tapes = []
    for read in (dataset, dataset, decoded):
        stream = opened(read)
        tapes.append(positions(stream, POSITIONS))
        stream.close()
    assert tapes[1] == tapes[0]
    assert tapes[2] == tapes[0]


@settings(_settings, max_examples=100)
@given(tree=TREES, at=st.integers(0, POSITIONS))
def test_an_epoch_resumed_from_a_state_is_the_uninterrupted_one(
    folder: Path, tree: Tree, at: int
) -> None:
    dataset = build(tree, folder).with_options(stoker.Options(seed=11))
    first = dataset.iterator(epoch=2)
    tape: list[Any] = []
    states = []
    with first:
        while len(tape) < POSITIONS:
            states.append(first.state_dict())
            try:
                tape.append(canonical(next(first)))
            except StopIteration:
                break
            except Exception as error:
                tape.append(failed(error))
    at = min(at, len(states) - 1)
    with build(tree, folder).iterator(state=states[at]) as resumed:
        found = positions(resumed._stream, len(tape) - at)
    assert found == tape[at:]


@settings(_settings, max_examples=100)
@given(tree=TREES)
def test_the_cardinality_is_a_fact(folder: Path, tree: Tree) -> None:
    dataset = build(tree, folder)
    cardinality = dataset.cardinality()
    if any(_may_end(node) for node in number(dataset.node)):
        return
    tape = tape_of(tree, folder)
    if cardinality >= 0:
        assert len(tape) == min(cardinality, POSITIONS)
    elif cardinality == stoker.INFINITE_CARDINALITY:
        assert len(tape) == POSITIONS


def _may_end(node: Node) -> bool:
    """An endless repeat says infinite, as tf.data's, even where it may find nothing to repeat."""
    if not isinstance(node, Repeat) or node.count >= 0:
        return False
    return node.input.cardinality() == stoker.UNKNOWN_CARDINALITY


@settings(_settings, max_examples=60)
@given(tree=TREES, count=st.integers(0, 8))
def test_closing_half_way_leaves_no_thread(folder: Path, tree: Tree, count: int) -> None:
    stream = opened(build(tree, folder))
    positions(stream, count)
    stream.close()
    for thread in threading.enumerate():
        if thread.name.startswith("stoker-reader"):
            thread.join(10)  # it may have been inside a function
            assert not thread.is_alive()


def test_trees_cover_every_node_and_both_outcomes(folder: Path) -> None:
    """The generators above would be worth little if some kind never came up."""
    kinds: set[str] = set()
    outcomes: set[bool] = set()

    @settings(max_examples=400, derandomize=True, database=None)
    @given(tree=TREES)
    def collect(tree: Tree) -> None:
        kinds.update(node.kind for node in number(build(tree, folder).node))
        if len(tree[1]) < 4:
            for position in tape_of(tree, folder):
                outcomes.add(isinstance(position, tuple) and position[:1] == ("raised",))

    collect()
    # tests/adapters/parts has those of the adapters.
    below = ("stoker.dataset.", "stoker.service.", "stoker.compat.")
    known = {kind for kind, cls in registry.items() if cls.__module__.startswith(below)}
    assert known - kinds <= _ELSEWHERE.keys()
    assert outcomes == {True, False}
