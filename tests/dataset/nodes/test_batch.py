"""batch: stacking, and map with batch in one step."""

import dataclasses
import re
import threading
import time
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from stoker import Dataset
from stoker.dataset.collation.collate import collate
from stoker.dataset.nodes.batch import Batch, MapAndBatch
from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.range import Range
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import AUTOTUNE, Context
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import RaggedSpec, TensorSpec, UnknownSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs

WAYS = [None, 1, 3, AUTOTUNE]
Pair = namedtuple("Pair", "left right")  # noqa: PYI024


@dataclasses.dataclass
class Example:
    image: Any
    label: Any

    def __post_init__(self) -> None:
        assert np.ndim(self.image) == 1, "examples hold one image"


def batched(
    function: Any, n: int, size: int, calls: int | None = None, *, drop: bool = False
) -> Batch:
    source = Range(start=0, stop=n, step=1)
    mapped = Map(
        input=source, function=Pickled.of(function), num_parallel_calls=calls, site="map.py:1"
    )
    return Batch(input=mapped, batch_size=size, drop_remainder=drop, site="batch.py:2")


def read(stream: Stream, *, chunks: bool = False) -> list[Any]:
    out: list[Any] = []
    while True:
        try:
            chunk = stream.next_chunk(5, 1 << 20) if chunks else [stream.next()]
        except StopIteration:
            return out
        except Exception as error:
            out.append(f"{type(error).__name__}: {error}")
            continue
        if not chunk:
            return out
        out += [batch.tolist() if isinstance(batch, np.ndarray) else batch for batch in chunk]


def whole(node: Any, *, chunks: bool = False) -> list[Any]:
    stream = open_stream(node, Context())
    try:
        return read(stream, chunks=chunks)
    finally:
        stream.close()


def stack(*values: Any) -> Any:
    return collate(values, np.empty)


@given(
    st.lists(
        hnp.arrays(hnp.array_dtypes() | hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0)),
        min_size=1,
        max_size=1,
    ),
    st.integers(1, 5),
)
def test_a_batch_of_arrays_is_their_stack(arrays: list[Any], copies: int) -> None:
    values = arrays * copies
    batch = stack(*values)
    assert batch.dtype == arrays[0].dtype
    assert batch.shape == (copies, *arrays[0].shape)
    assert all(batch[i : i + 1].tobytes() == arrays[0].tobytes() for i in range(copies))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ((1, -(2**63), 2**63 - 1), np.int64),
        ((1.5, 2.0), np.float64),
        ((True, False), np.bool_),
        ((1j, 2.0 + 0j), np.complex128),
        (("a", "long text"), object),
        ((b"a", b""), object),
        (("a", None, b"b"), object),
        ((None, None), object),
        ((np.float32(1), np.float32(2)), np.float32),
        ((np.uint64(2**64 - 1),), np.uint64),
        ((1, np.int64(2)), np.int64),
        ((np.str_("ab"), "c"), object),
        ((np.datetime64(5, "s"), np.datetime64(6, "s")), "datetime64[s]"),
    ],
)
def test_scalars_become_one_dimension(values: tuple[Any, ...], dtype: Any) -> None:
    batch = stack(*values)
    assert batch.dtype == np.dtype(dtype)
    assert batch.tolist() == [v.item() if isinstance(v, np.generic) else v for v in values]
    assert type(batch.tolist()[0]) is not np.str_


def test_structures_are_kept() -> None:
    value = {
        "pair": Pair(1, np.ones(2, np.float32)),
        "more": (["a"], Example(np.zeros(3), 2.5), {}),
    }
    batch = stack(value, value)
    assert type(batch["pair"]) is Pair
    assert batch["pair"].left.tolist() == [1, 1]
    assert batch["pair"].right.shape == (2, 2)
    assert type(batch["more"]) is tuple
    assert batch["more"][0][0].tolist() == ["a", "a"]
    assert type(batch["more"][1]) is Example
    assert batch["more"][1].image.shape == (2, 3)
    assert batch["more"][2] == {}


def test_keys_may_come_in_another_order() -> None:
    batch = stack({"a": 1, "b": 2}, {"b": 4, "a": 3})
    assert {key: value.tolist() for key, value in batch.items()} == {"a": [1, 3], "b": [2, 4]}


def test_sparse_arrays_gain_a_dimension() -> None:
    dense = np.array([[0, 5], [7, 0]])
    batch = stack(SparseArray.from_dense(dense), SparseArray.from_dense(dense.T))
    assert batch == SparseArray.from_dense(np.stack([dense, dense.T]))


def sparse(indices: list[list[int]], value: float, shape: list[int]) -> SparseArray:
    return SparseArray(np.array(indices), np.array([value]), np.array(shape))


def test_sparse_arrays_of_differing_shapes_fit_in_the_largest() -> None:
    narrow, low = sparse([[1, 0]], 7, [3, 1]), sparse([[0, 3]], 8, [1, 5])
    batch = stack(narrow, low)
    assert (batch.dense_shape.tolist(), batch.values.tolist()) == ([2, 3, 5], [7, 8])
    assert batch.indices.tolist() == [[0, 1, 0], [1, 0, 3]]
    for other in (sparse([[0]], 1, [3]), sparse([[0, 0]], 1.5, [3, 1])):
        with pytest.raises(InvalidArgumentError, match="is sparse with 2 dimensions and dtype int"):
            stack(narrow, other)


def test_ragged_arrays_gain_a_ragged_dimension() -> None:
    rows: list[Any] = [[[1], [2, 3]], [], [[4]]]
    batch = stack(*[RaggedArray.from_rows(row, np.int16) for row in rows])
    assert batch == RaggedArray.from_rows(rows, np.int16)
    dataset = Dataset.from_tensor_slices(batch).batch(2)
    assert dataset.element_spec == RaggedSpec((None, None, None), np.int16, ragged_rank=2)
    assert [batch.to_list() for batch in dataset] == [rows[:2], rows[2:]]
    assert [row.to_list() for row in dataset.unbatch()] == rows
    twice = dataset.batch(2)
    assert twice.element_spec == RaggedSpec((None,) * 4, np.int16, ragged_rank=3)
    assert [batch.to_list() for batch in twice] == [[rows[:2], rows[2:]]]
    assert [batch.to_list() for batch in twice.unbatch().rebatch([1, 2])] == [rows[:1], rows[1:]]
    check_verbs(lambda: dataset.map(lambda x: x.to_list()))


class ImageOfAnotherLibrary:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(6, dtype=np.uint8).reshape(2, 3)


def test_an_object_with_the_array_protocol_is_an_array() -> None:
    assert stack(ImageOfAnotherLibrary()).tolist() == [[[0, 1, 2], [3, 4, 5]]]


def lengths(x: int) -> Any:
    return {"image": [np.zeros(1000 + (x == 5), np.uint8)]}


def dtypes(x: int) -> Any:
    return (np.zeros(1000, np.float32 if x == 5 else np.uint8),)


MISMATCHES = [
    (
        lengths,
        (
            r"the leaf \['image'\]\[0\] has shape \(1000,\) in element 0 of the batch and "
            r"\(1001,\) in element 1; crop, resize or pad"
        ),
    ),
    (
        dtypes,
        r"the leaf \[0\] has dtype uint8 in element 0 of the batch and float32 in element 1; cast",
    ),
    (
        lambda x: 1.5 if x == 5 else x,
        "the element has dtype int64 in element 0 of the batch and float64 in element 1; cast",
    ),
    (
        lambda x: "a" if x == 5 else x,
        r"has dtype int64 in element 0 of the batch and object in element 1; cast .*\(object\)`",
    ),
    (
        lambda x: np.array(["ab" if x == 5 else "a"]),
        r"has dtype <U1 in element 0 of the batch and <U2 in element 1; cast .*\(object\)`",
    ),
    (
        lambda x: {"a" if x == 5 else "b": 1},
        "is a dict with the keys 'b' in element 0 .* keys 'a' in element 1",
    ),
    (
        lambda x: ([np.zeros(999)] * (1 + (x == 5)),),
        r"the value \[0\] is a list of 1 in element 0 of the batch and a list of 2 in element 1",
    ),
    (
        lambda x: {"a": [np.zeros(999)] if x == 5 else np.zeros(999)},
        r"the value \['a'\] is an array in element 0 of the batch and a list of 1 in element 1",
    ),
    (
        lambda x: [0] * (1 + (x == 5)),
        "a list of 2 in element 1; .* use padded_batch or ragged_batch",
    ),
    (lambda x: 2**63 if x == 5 else x, f"the element holds {2**63}, beyond int64; return"),
    (lambda x: {"s": {x}}, r"the leaf \['s'\] is a builtins.set; return arrays"),
    (
        lambda x: RaggedArray.from_rows([[x]]) if x == 5 else 1,
        "the element is a RaggedArray in one element and another value in another",
    ),
    (
        lambda x: RaggedArray.from_rows([[[x], [x, x]]] if x == 5 else [[x]]),
        "the element is ragged in 1 dimensions in element 0 of the batch and in 2 in element 1",
    ),
    (
        lambda x: RaggedArray.from_rows([[x]], np.int16 if x == 5 else np.int64),
        "the element has dtype int64 in element 0 of the batch and int16 in element 1",
    ),
]


@pytest.mark.parametrize("calls", WAYS)
@pytest.mark.parametrize(("function", "message"), MISMATCHES)
def test_a_mismatch_names_the_leaf_both_values_and_the_remedy(
    function: Any, message: str, calls: int | None
) -> None:
    stream = open_stream(batched(function, 8, 4, calls), Context())
    error: Exception | None = None
    for _ in range(2):
        try:
            stream.next()
        except InvalidArgumentError as raised:
            error = raised
    stream.close()
    assert error is not None
    assert re.search(message, str(error))
    origin = failure_origin(error)
    assert origin is not None
    assert origin[:2] == ("batch", "batch.py:2")
    assert origin.index in (0, 1)


def fail_at(*bad: int) -> Any:
    def function(x: int) -> int:
        if x in bad:
            raise KeyError(x)
        return x

    return function


@pytest.mark.parametrize("calls", WAYS)
@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("bad", [(), (0,), (3, 5, 17, 18), (19,)])
def test_a_failed_element_fails_its_whole_batch(
    calls: int | None, chunks: bool, drop: bool, bad: tuple[int, ...]
) -> None:
    expected: list[Any] = []
    for start in range(0, 20, 3):
        rows = list(range(start, min(start + 3, 20)))
        failed = [x for x in rows if x in bad]
        if len(rows) == 3 or not drop:
            expected.append(f"KeyError: {failed[0]}" if failed else rows)
    assert whole(batched(fail_at(*bad), 20, 3, calls, drop=drop), chunks=chunks) == expected


def image(x: int) -> Any:
    return {"image": np.full((8, 100), x, np.uint8)[::-1], "label": x, "name": f"{x}.jpg"}


@pytest.mark.parametrize("calls", WAYS)
def test_fused_and_unfused_batches_are_the_same(calls: int | None) -> None:
    batches = []
    stream = open_stream(batched(image, 50, 8, calls), Context())
    while chunk := stream.next_chunk(3, 1 << 20):
        batches += chunk
    stream.close()
    assert [len(batch["label"]) for batch in batches] == [8] * 6 + [2]
    for batch in batches:
        assert list(batch) == ["image", "label", "name"]
        assert batch["image"].shape == (len(batch["label"]), 8, 100)
        assert batch["image"][:, 3, 3].tolist() == batch["label"].tolist()
        assert batch["name"].tolist() == [f"{x}.jpg" for x in batch["label"]]


def test_the_computing_threads_write_the_rows() -> None:
    allocations: list[tuple[tuple[int, ...], str]] = []

    def allocate(shape: tuple[int, ...], dtype: Any) -> Any:
        allocations.append((shape, threading.current_thread().name))
        return np.empty(shape, dtype)

    barrier = threading.Barrier(2)

    def function(x: int) -> Any:
        barrier.wait(20)
        return np.full(5000, x)

    node = batched(function, 8, 4, 2)
    stream = open_stream(node, Context(allocate=allocate))
    assert stream.next()[:, 0].tolist() == [0, 1, 2, 3]
    assert stream.next()[:, 4999].tolist() == [4, 5, 6, 7]
    stream.close()
    assert [shape for shape, _ in allocations] == [(4, 5000)] * 2


def test_the_memory_of_a_delivered_batch_is_released() -> None:
    """Before the next batch begins, which a slow input may delay."""
    allocated: list[weakref.ref[Any]] = []

    def allocate(shape: tuple[int, ...], dtype: Any) -> Any:
        array = np.empty(shape, dtype)
        allocated.append(weakref.ref(array))
        return array

    node = batched(lambda x: np.full(5000, x), 4, 4, 2)
    stream = open_stream(node, Context(allocate=allocate))
    assert stream.next()[:, 0].tolist() == [0, 1, 2, 3]
    (memory,) = allocated
    deadline = time.monotonic() + 20
    while memory() is not None:  # a thread that has just finished a call may still refer to it
        assert time.monotonic() < deadline
        time.sleep(0.001)
    stream.close()


@pytest.mark.parametrize("calls", WAYS)
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("skip", [0, 1, 3, 8, 9, 30])
@pytest.mark.parametrize("chunks", [False, True])
def test_advance_equals_dropping(
    calls: int | None, drop: bool, before: int, skip: int, chunks: bool
) -> None:
    node = batched(lambda x: x, 50, 6, calls, drop=drop)
    everything = whole(node)
    assert len(everything) == (8 if drop else 9)
    stream = open_stream(node, Context())
    for _ in range(before):
        if chunks:
            assert len(stream.next_chunk(1, 1 << 20)) == 1
        else:
            stream.next()
    assert stream.advance(skip) == min(skip, len(everything) - before)
    assert read(stream, chunks=chunks) == everything[before + skip :]
    stream.close()


def test_advance_calls_nothing() -> None:
    called: list[int] = []
    stream = open_stream(batched(called.append, 10**9, 10), Context())
    assert stream.advance(10**9) == 10**8
    stream.close()
    assert called == []


def test_dropping_everything_leaves_nothing() -> None:
    assert whole(batched(lambda x: x, 3, 4, drop=True)) == []


def test_chunks_of_cheap_batches_hold_many() -> None:
    stream = open_stream(batched(lambda x: x, 10_000, 10), Context())
    stream.next_chunk(100, 1 << 20)
    assert max(len(stream.next_chunk(100, 1 << 20)) for _ in range(20)) > 5
    stream.close()


def test_a_chunk_is_bounded_in_bytes() -> None:
    stream = open_stream(batched(lambda _: np.zeros(1000, np.uint8), 1000, 10), Context())
    chunks = []
    while chunk := stream.next_chunk(100, 50_000):
        chunks.append(len(chunk))
    stream.close()
    assert max(chunks) <= 5
    assert sum(chunks) == 100


@pytest.mark.parametrize("cls", [Batch, MapAndBatch])
def test_spec_and_cardinality_follow_the_input(cls: type) -> None:
    source = Range(start=0, stop=10, step=1)
    spec = Pickled.of({"x": TensorSpec((2,), np.uint8), "y": UnknownSpec()})
    function = Pickled.of(lambda x: x)
    for drop, length, count in ((False, None, 4), (True, 3, 3)):
        fields: dict[str, Any] = {"batch_size": 3, "drop_remainder": drop}
        node = cls(input=Map(input=source, function=function, spec=spec), **fields)
        assert node.cardinality() == count
        assert node.element_spec() == {
            "x": TensorSpec((length, 2), np.uint8),
            "y": UnknownSpec(),
        }


def test_autotune_moves_to_the_pool_within_the_first_batch() -> None:
    names: list[str] = []

    def function(x: int) -> int:
        names.append(threading.current_thread().name)
        threading.Event().wait(0.002)
        return x

    stream = open_stream(batched(function, 64, 64, AUTOTUNE), Context())
    assert stream.next().tolist() == list(range(64))
    stream.close()
    assert names[0] == threading.current_thread().name
    assert any(name.startswith("stoker-pool-") for name in names)


@pytest.mark.parametrize("calls", [None, 3, AUTOTUNE])
@pytest.mark.parametrize("deterministic", [None, True, False])
def test_batch_accepts_parallelism_and_keeps_the_order(
    calls: int | None, deterministic: bool | None
) -> None:
    dataset = Dataset.range(5).batch(2, False, calls, deterministic)
    assert [batch.tolist() for batch in dataset] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": 0}, {"num_parallel_calls": 0}, {"deterministic": 1}, {"drop_remainder": None}],
)
def test_wrong_arguments_are_refused_when_the_dataset_is_built(arguments: dict[str, Any]) -> None:
    (name,) = arguments
    with pytest.raises(InvalidArgumentError, match=f"`{name}` must be"):
        Dataset.range(5).batch(**{"batch_size": 2, **arguments})


class _StopsWhenConverted:
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise StopIteration


def test_a_stop_iteration_while_stacking_is_an_error_not_the_end() -> None:
    dataset = Dataset.range(2).map(lambda x: _StopsWhenConverted()).batch(2)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(dataset)
