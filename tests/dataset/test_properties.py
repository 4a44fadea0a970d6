"""Random trees over all nodes: however a stream is read, it is the same stream."""

import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker.dataset.execute import Context, open_stream
from stoker.dataset.node import decode_tree, encode_tree
from stoker.dataset.stream import Stream

_POSITIONS = 60
_FILES = [f"{letter}.txt" for letter in "abcdefg"]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        for file in _FILES:
            Path(name, file).touch()
        yield Path(name)


def digest(*elements: Any) -> int:
    """A number that depends on the elements only, so that functions may depend on it."""
    return zlib.crc32(repr([canonical(element) for element in elements]).encode())


def canonical(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(canonical(member) for member in value)
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tolist())
    if isinstance(value, np.generic):
        return ("scalar", str(value.dtype), value.item())
    return Path(value).name if isinstance(value, str) else value


def flaky(tag: int, result: Callable[[int], Any]) -> Callable[..., Any]:
    """A function of any element that raises for about one in nine."""

    def function(*elements: Any) -> Any:
        number = digest(tag, *elements)
        if number % 9 == 0:
            raise ValueError(f"no {number}")
        return result(number)

    return function


def generated(count: int) -> Iterator[int]:
    yield from range(100, 100 + count)
    if count % 2:
        raise RuntimeError("the generator broke")


_SOURCES = st.one_of(
    st.tuples(st.just("range"), st.integers(0, 14)),
    st.tuples(st.just("from_tensors")),
    st.tuples(st.just("from_tensor_slices"), st.integers(0, 9)),
    st.tuples(st.just("list_files"), st.booleans(), st.sampled_from([None, 3])),
    st.tuples(st.just("from_generator"), st.integers(0, 9)),
)
_tags = st.integers(0, 50)
_small = st.integers(1, 5)
_calls = st.sampled_from([None, 1, 2, 3, stoker.AUTOTUNE])
_STEPS = st.one_of(
    st.tuples(st.just("map"), _tags, _calls),
    st.tuples(st.just("map_to_pairs"), _tags, _calls),
    st.tuples(st.just("map_and_batch"), _tags, _small, st.booleans()),
    st.tuples(st.just("filter"), _tags),
    st.tuples(st.just("flat_map"), _tags),
    st.tuples(st.just("batch"), _small, st.booleans()),
    st.tuples(st.just("shuffle"), st.integers(1, 12), st.sampled_from([None, 5]), st.booleans()),
    st.tuples(st.just("repeat"), st.integers(0, 3)),
    st.tuples(st.just("repeat_and_take"), st.integers(0, 40)),
    st.tuples(st.just("take"), st.integers(-1, 12)),
    st.tuples(st.just("skip"), st.integers(0, 12)),
    st.tuples(st.just("cache")),
    st.tuples(st.just("prefetch"), st.sampled_from([1, 3, stoker.AUTOTUNE])),
)
_TREES = st.tuples(_SOURCES, st.lists(_STEPS, max_size=9))
_READS = st.lists(
    st.one_of(
        st.tuples(st.just("next"), st.just(1), st.just(0)),
        st.tuples(st.just("advance"), st.integers(0, 25), st.just(0)),
        st.tuples(st.just("chunk"), st.integers(1, 20), st.sampled_from([1, 100, 1 << 20])),
    ),
    max_size=12,
)


def source(spec: tuple[Any, ...], folder: Path) -> stoker.Dataset:
    match spec:
        case ("range", stop):
            return stoker.Dataset.range(stop)
        case ("from_tensors",):
            return stoker.Dataset.from_tensors((1, [1.5, 2.5]))
        case ("from_tensor_slices", count):
            return stoker.Dataset.from_tensor_slices((np.arange(count), np.eye(count, 2)))
        case ("list_files", shuffle, seed):
            return stoker.Dataset.list_files(f"{folder}/*.txt", shuffle=shuffle, seed=seed)
        case ("from_generator", count):
            return stoker.Dataset.from_generator(generated, args=(count,))
    raise AssertionError(spec)


def nested(number: int) -> stoker.Dataset:
    dataset = stoker.Dataset.range(number % 5)
    return dataset.map(flaky(number, lambda n: n % 100)).shuffle(3) if number % 2 else dataset


def step(dataset: stoker.Dataset, spec: tuple[Any, ...]) -> stoker.Dataset:  # noqa: C901
    match spec:
        case ("map", tag, calls):
            return dataset.map(flaky(tag, lambda n: n % 1000), calls)
        case ("map_to_pairs", tag, calls):
            return dataset.map(flaky(tag, lambda n: (n % 7, float(n))), calls)
        case ("map_and_batch", tag, size, drop):
            return dataset.map(flaky(tag, lambda n: n % 1000), 2).batch(size, drop)
        case ("filter", tag):
            return dataset.filter(flaky(tag, lambda n: n % 3))
        case ("flat_map", tag):
            return dataset.flat_map(flaky(tag, nested))
        case ("batch", size, drop):
            return dataset.batch(size, drop)
        case ("shuffle", size, seed, reshuffle):
            return dataset.shuffle(size, seed, reshuffle)
        case ("repeat", count):
            return dataset.repeat(count)
        case ("repeat_and_take", count):
            return dataset.repeat().take(count)
        case ("take", count):
            return dataset.take(count)
        case ("skip", count):
            return dataset.skip(count)
        case ("cache",):
            return dataset.cache()
        case ("prefetch", size):
            return dataset.prefetch(size)
    raise AssertionError(spec)


def build(tree: tuple[Any, list[Any]], folder: Path) -> stoker.Dataset:
    """The tree anew: its caches are empty."""
    dataset = source(tree[0], folder)
    for spec in tree[1]:
        dataset = step(dataset, spec)
    return dataset


def opened(dataset: stoker.Dataset) -> Stream:
    return open_stream(dataset.node, Context(seed=11, epoch=(2,)))


def failed(error: Exception) -> Any:
    return ("raised", type(error).__name__, str(error))


def positions(stream: Stream, count: int) -> list[Any]:
    """What `count` calls of `next` give, elements and errors; fewer at the end."""
    found: list[Any] = []
    while len(found) < count:
        try:
            found.append(canonical(stream.next()))
        except StopIteration:
            break
        except Exception as error:
            found.append(failed(error))
    return found


def tape_of(tree: tuple[Any, list[Any]], folder: Path) -> list[Any]:
    stream = opened(build(tree, folder))
    try:
        return positions(stream, _POSITIONS)
    finally:
        stream.close()


_settings = settings(
    deadline=None,
    max_examples=250,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_settings
@given(tree=_TREES, n=st.integers(0, _POSITIONS + 10))
def test_advance_then_reading_equals_reading_and_dropping(
    folder: Path, tree: tuple[Any, list[Any]], n: int
) -> None:
    tape = tape_of(tree, folder)
    ended = len(tape) < _POSITIONS
    stream = opened(build(tree, folder))
    try:
        passed = stream.advance(n)
        if ended:
            assert passed == min(n, len(tape))
        elif n <= _POSITIONS:
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
@given(tree=_TREES, reads=_READS)
def test_next_and_chunks_of_any_size_and_advance_read_the_same_stream(
    folder: Path, tree: tuple[Any, list[Any]], reads: list[tuple[str, int, int]]
) -> None:
    tape = tape_of(tree, folder)
    ended = len(tape) < _POSITIONS
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
@given(tree=_TREES)
def test_a_second_pass_with_a_full_cache_and_a_decoded_tree_are_the_same_stream(
    folder: Path, tree: tuple[Any, list[Any]]
) -> None:
    dataset = build(tree, folder)
    decoded = stoker.Dataset(decode_tree(encode_tree(dataset.node)))
    tapes = []
    for read in (dataset, dataset, decoded):
        stream = opened(read)
        tapes.append(positions(stream, _POSITIONS))
        stream.close()
    assert tapes[1] == tapes[0]
    assert tapes[2] == tapes[0]


def test_trees_cover_every_node_and_both_outcomes(folder: Path) -> None:
    """The generators above would be worth little if some kind never came up."""
    kinds: set[str] = set()
    outcomes: set[bool] = set()

    @settings(deadline=None, max_examples=200, derandomize=True, database=None)
    @given(tree=_TREES)
    def collect(tree: tuple[Any, list[Any]]) -> None:
        dataset = build(tree, folder)
        node = dataset.node
        while True:
            kinds.add(node.kind)
            if not node.inputs:
                break
            node = node.inputs[0]
        if len(tree[1]) < 4:
            for position in tape_of(tree, folder):
                outcomes.add(isinstance(position, tuple) and position[:1] == ("raised",))

    collect()
    assert kinds == {
        "range", "from_tensors", "from_tensor_slices", "list_files", "from_generator", "map",
        "filter", "flat_map", "batch", "shuffle", "repeat", "take", "skip", "cache", "prefetch",
    }  # fmt: skip
    assert outcomes == {True, False}
