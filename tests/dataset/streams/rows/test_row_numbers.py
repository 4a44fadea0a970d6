"""Batches gathered by row numbers are the batches of the elements, however they are read."""

import dataclasses
import itertools
import tracemalloc
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker import Dataset
from stoker.dataset.nodes.range import Counter, Range
from stoker.dataset.nodes.tensors import TensorSlices
from stoker.dataset.tree.node import number
from stoker.dataset.tree.splits import ENDLESS
from stoker.elements.structure import map_structure
from tests.dataset.splits import ScriptedSplits
from tests.dataset.verbs import check_verbs, opened

Pair = namedtuple("Pair", "left right")  # noqa: PYI024
Steps = list[tuple[Any, ...]]


@dataclasses.dataclass
class Example:
    image: Any
    label: Any


def words(n: int) -> list[Any]:
    return [["a", "bc\0", None, b"\x00d", np.str_("e")][i % 5] for i in range(n)]


def objects(values: list[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


VALUES: dict[str, Callable[[int], Any]] = {
    "bytes": lambda n: np.arange(n * 12, dtype=np.uint8).reshape(n, 3, 4),
    "halves": lambda n: np.arange(n, dtype=np.float16),
    "bools": lambda n: np.arange(n) % 3 == 0,
    "complex": lambda n: np.arange(n) * 1j,
    "dates": lambda n: np.arange(n).astype("datetime64[s]"),
    "swapped": lambda n: np.arange(n, dtype=">i4"),
    "swapped rows": lambda n: np.arange(n * 2, dtype=">f8").reshape(n, 2),
    "every other": lambda n: np.arange(n * 6).reshape(n * 2, 3)[::2],
    "backwards": lambda n: np.arange(n * 2).reshape(n, 2)[::-1],
    "columns first": lambda n: np.asfortranarray(np.arange(n * 6.0).reshape(n, 3, 2)),
    "read-only": lambda n: np.broadcast_to(np.arange(3), (n, 3)),
    "unaligned": lambda n: np.frombuffer(bytes(1) + np.arange(n).tobytes(), np.int64, n, 1),
    "empty rows": lambda n: np.zeros((n, 0), np.float32),
    "records": lambda n: np.array([(i, i / 2) for i in range(n)], [("i", ">i4"), ("x", "f4")]),
    "text": lambda n: objects(words(n)),
    "rows of text": lambda n: objects(words(n * 2)).reshape(n, 2),
    "fixed text": lambda n: np.array([f"t{i}" for i in range(n)], "U8"),
    "fixed bytes": lambda n: np.array([b"b%d" % i for i in range(n)], "S8"),
    "rows of fixed text": lambda n: np.array([[f"t{i}", "u"] for i in range(n)], "U8"),
    "tuple": lambda n: (np.arange(n), np.eye(n, 2)),
    "dict in a tuple": lambda n: ({"image": np.arange(n)}, np.arange(n) + 0.5),
    "dict": lambda n: {"b": np.arange(n), "a": (np.arange(n), {"c": -np.arange(n)})},
    "namedtuple": lambda n: Pair(np.arange(n), (np.arange(n),)),
    "dataclass": lambda n: Example(np.eye(n, 3), np.arange(n)),
}

SOURCES = st.one_of(
    st.tuples(st.just("arrays"), st.sampled_from(list(VALUES)), st.integers(1, 40)),
    st.tuples(st.just("range"), st.integers(-3, 3), st.integers(0, 40), st.integers(1, 3)),
    st.tuples(st.just("counter"), st.integers(-5, 5), st.integers(-3, 3)),
)
STEPS = st.one_of(
    st.tuples(st.just("shuffle"), st.integers(1, 50), st.sampled_from([None, 7]), st.booleans()),
    st.tuples(st.just("repeat"), st.integers(-1, 3)),
    st.tuples(st.just("take"), st.integers(-1, 60)),
    st.tuples(st.just("skip"), st.integers(0, 20)),
    st.tuples(st.just("shard"), st.sampled_from([1, 2, 3, 7, 20])),
    st.tuples(st.just("enumerate"), st.integers(-2, 3)),
    st.tuples(st.just("prefetch"), st.integers(1, 3)),
    st.tuples(st.just("zip"), SOURCES),
)
TREES = st.tuples(SOURCES, st.lists(STEPS, max_size=5))
MOST = 150
"""Trees may be endless: the number of elements that are read."""


def source(spec: tuple[Any, ...]) -> Dataset:
    match spec:
        case ("arrays", name, n):
            return Dataset.from_tensor_slices(VALUES[name](n))
        case ("range", start, n, step):
            return Dataset.range(start, start + n * step, step)
        case ("counter", start, step):
            return Dataset.counter(start, step)
    raise AssertionError(spec)


def build(tree: tuple[tuple[Any, ...], Steps]) -> Dataset:
    dataset = source(tree[0])
    for name, *arguments in tree[1]:
        if name == "zip":
            dataset = Dataset.zip({"left": dataset, "right": source(arguments[0])})
        elif name == "shard":
            dataset = dataset.shard(arguments[0], arguments[0] // 2)
        else:
            dataset = getattr(dataset, name)(*arguments)
    return dataset.take(MOST)


def exact(value: Any) -> Any:
    """The value with the exact types, dtypes and contents of its leaves."""

    def of_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return type(leaf).__name__, leaf
        types = [type(item) for item in leaf.flat] if leaf.dtype == object else []
        contents = leaf.dtype.str, leaf.dtype.fields, leaf.shape, leaf.tolist(), types
        return (*contents, leaf.flags.writeable, leaf.base is None)

    return type(value).__name__, repr(map_structure(of_leaf, value))


def read(dataset: Dataset, **context: Any) -> list[Any]:
    stream = opened(dataset, **context)
    try:
        found: list[Any] = []
        while chunk := stream.next_chunk(3, 1 << 20):
            found += map(exact, chunk)
        return found
    finally:
        stream.close()


@contextmanager
def no_tables() -> Iterator[None]:
    """All streams yield elements, and batch stacks them."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in (TensorSlices, Range, Counter):
            patch.setattr(kind, "table", lambda _: None)
        yield


def read_elements(dataset: Dataset, **context: Any) -> list[Any]:
    with no_tables():
        assert dataset.node.table() is None
        return read(dataset, **context)


@settings(max_examples=300)
@given(tree=TREES, size=st.integers(1, 9), drop=st.booleans())
def test_batches_of_rows_equal_batches_of_elements(tree: Any, size: int, drop: bool) -> None:
    dataset = build(tree)
    assert dataset.node.table() is not None
    batches = dataset.batch(size, drop)
    assert read(batches) == read_elements(batches)


@settings(max_examples=150)
@given(tree=TREES)
def test_elements_of_rows_equal_elements(tree: Any) -> None:
    dataset = build(tree)
    assert read(dataset) == read_elements(dataset)


@settings(max_examples=60)
@given(tree=TREES, size=st.integers(1, 9))
def test_batches_of_rows_are_the_same_by_every_verb(tree: Any, size: int) -> None:
    numbers = build(tree).batch(size).map(lambda *batch: repr(exact(batch)))
    check_verbs(lambda: numbers, mixes=4)


@settings(max_examples=60)
@given(tree=TREES, size=st.integers(1, 9), at=st.integers(0, 30))
def test_a_state_continues_with_the_next_batch_of_rows(tree: Any, size: int, at: int) -> None:
    dataset = build(tree).batch(size).with_options(stoker.Options(seed=3))
    with dataset.iterator(epoch=1) as first:
        whole = [exact(batch) for batch in itertools.islice(first, at)]
        state = first.state_dict()
        rest = [exact(batch) for batch in first]
    assert len(whole) == at or not rest
    with dataset.iterator(state=state) as resumed:
        assert [exact(batch) for batch in resumed] == rest


@settings(max_examples=100)
@given(
    tree=TREES,
    size=st.integers(1, 9),
    runs=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=6),
)
def test_assigned_splits_are_read_the_same_way(
    tree: Any, size: int, runs: list[tuple[int, int]]
) -> None:
    source_spec, steps = tree  # a zip has its own splits: below; an endless repeat waits for more
    dataset = build((source_spec, [s for s in steps if s[0] != "zip" and s != ("repeat", -1)]))
    count = source_spec[2] if source_spec[0] != "counter" else ENDLESS
    ranges = [(min(a, count), min(a + n, count)) for a, n in runs]

    def splits() -> Any:
        return ScriptedSplits({number: [ranges, ranges[:1]] for number in range(20)})

    for read_one in (dataset, dataset.batch(size)):
        assert read(read_one, splits=splits()) == read_elements(read_one, splits=splits())


def test_zipped_sources_share_their_splits() -> None:
    left = Dataset.from_tensor_slices(np.arange(30))
    right = Dataset.from_tensor_slices(np.arange(30) * 2).prefetch(2)
    pairs = Dataset.zip((left, right)).shuffle(10)
    numbers = number(pairs.batch(4).node)
    zipped = numbers[pairs.node.inputs[0]]
    batches = []
    for read_one in (read, read_elements):
        splits = ScriptedSplits({zipped: [[(3, 9), (20, 26)]]})
        batches.append(read_one(pairs.batch(4), splits=splits))
    assert len(batches[0]) == 3
    assert batches[0] == batches[1]


def test_a_batch_is_not_a_view_of_its_source() -> None:
    pixels, labels = np.zeros((6, 2)), np.zeros(6)
    dataset = Dataset.from_tensor_slices((pixels, labels))
    for batches in (dataset.batch(3), dataset.shuffle(6).batch(3), dataset.shard(2, 0).batch(3)):
        for batch in batches:
            for array in batch:
                array[...] = 1
    assert not pixels.any()
    assert not labels.any()


def test_batches_of_rows_are_allocated_by_the_context() -> None:
    made: list[Any] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        made.append(np.empty(shape, dtype))
        return made[-1]

    value = {"a": np.arange(10), "b": np.eye(10), "c": objects(words(10))}
    stream = opened(Dataset.from_tensor_slices(value).shuffle(4).batch(10), allocate=allocate)
    batch = stream.next()
    assert [id(array) for array in batch.values()] == [id(array) for array in made]


def test_a_failed_allocation_occupies_its_position() -> None:
    stream = opened(Dataset.range(9).batch(3), allocate=failing_at(2))
    assert stream.next().tolist() == [0, 1, 2]
    with pytest.raises(MemoryError, match="2"):
        stream.next()
    assert stream.next().tolist() == [6, 7, 8]


def test_a_chunk_ends_before_an_allocation_that_failed() -> None:
    stream = opened(Dataset.range(12).batch(3), allocate=failing_at(3, 4))
    stream.next()
    assert [batch.tolist() for batch in stream.next_chunk(5, 1 << 20)] == [[3, 4, 5]]
    with pytest.raises(MemoryError, match="4"):
        stream.next_chunk(5, 1 << 20)
    assert stream.next().tolist() == [9, 10, 11]


def failing_at(*calls: int) -> Callable[..., Any]:
    """A function that allocates arrays, and fails when it is called for these times."""
    counted = itertools.count(1)

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        call = next(counted)
        if call in calls:
            raise MemoryError(str(call))
        return np.empty(shape, dtype)

    return allocate


def test_a_lazy_read_yields_small_batches_together() -> None:
    stream = opened(Dataset.range(100_000).batch(4))
    stream.next()
    assert len(stream.next_chunk(50, 1 << 20, True)) == 50
    large = opened(Dataset.from_tensor_slices(np.zeros((100, 1000))).batch(10))
    large.next()
    assert len(large.next_chunk(50, 64 << 10, True)) == 1


def test_a_shuffle_keeps_row_numbers_not_elements() -> None:
    rows = np.zeros((20_000, 100))
    iterator = iter(Dataset.from_tensor_slices((rows, rows)).shuffle(20_000))
    tracemalloc.start()
    next(iterator)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2_000_000  # 100 bytes a slot; views of two rows alone take 300
    iterator.close()


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_shuffle_far_into_an_endless_input_is_skipped(size: int) -> None:
    def batches() -> Dataset:
        return Dataset.range(500).repeat().shuffle(size, seed=4).batch(7)

    skipped = opened(batches())
    assert skipped.advance(5000) == 5000
    read_through = opened(batches())
    for _ in range(5000):
        read_through.next()
    assert skipped.next().tolist() == read_through.next().tolist()


def test_a_counter_beyond_int64_fails_where_it_is_stacked() -> None:
    batches = opened(Dataset.counter(2**63 - 4).batch(3))
    assert batches.next().tolist() == [2**63 - 4, 2**63 - 3, 2**63 - 2]
    with pytest.raises(stoker.errors.InvalidArgumentError, match="beyond int64"):
        batches.next()


def test_a_range_reaches_both_ends_of_int64() -> None:
    low = Dataset.range(-(2**63), -(2**63) + 6, 2).shuffle(3, seed=1).batch(3)
    high = Dataset.range(2**63 - 1, 2**63 - 7, -3).batch(3)
    assert sorted(next(iter(low)).tolist()) == [-(2**63), -(2**63) + 2, -(2**63) + 4]
    assert next(iter(high)).tolist() == [2**63 - 1, 2**63 - 4]
