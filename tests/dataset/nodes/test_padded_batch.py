"""padded_batch."""

import dataclasses
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from stoker import AUTOTUNE, Dataset, RaggedArray, SparseArray, TensorSpec, UnknownSpec
from stoker.dataset.streams.failures import failure_origin
from stoker.errors import DataLossError, InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened, plain, tape


def lists(*elements: Any) -> Dataset:
    """The elements as a function returns them: of unknown spec, lists as lists."""
    return Dataset.range(len(elements)).map(lambda i: elements[i])


def padded(*elements: Any, **arguments: Any) -> Any:
    """The one batch of all elements."""
    (batch,) = lists(*elements).padded_batch(len(elements), **arguments)
    return batch


def growing(n: int) -> Dataset:
    return Dataset.range(n).map(lambda x: np.full(x % 7, x))


def test_vectors_are_padded_to_the_longest_of_their_batch() -> None:
    batches = list(growing(4).padded_batch(2))
    assert plain(batches) == [[[0], [1]], [[2, 2, 0], [3, 3, 3]]]
    assert all(batch.dtype == np.int64 and batch.flags.writeable for batch in batches)


def test_the_last_batch_is_short_or_dropped() -> None:
    assert [len(batch) for batch in growing(5).padded_batch(2)] == [2, 2, 1]
    assert [len(batch) for batch in growing(5).padded_batch(2, drop_remainder=True)] == [2, 2]


@pytest.mark.parametrize("shape", [4, [4], (4,), np.array([4]), (np.int64(4),)])
def test_a_given_length_holds_for_every_batch(shape: Any) -> None:
    assert [b.shape for b in growing(4).padded_batch(2, shape)] == [(2, 4), (2, 4)]


@pytest.mark.parametrize("shape", [None, [None], [-1], -1])
def test_none_and_minus_one_are_the_longest(shape: Any) -> None:
    assert [b.shape for b in growing(4).padded_batch(2, shape)] == [(2, 1), (2, 3)]


def test_any_rank_is_padded_in_each_dimension() -> None:
    small, large = np.ones((1, 2, 1), np.float32), np.ones((2, 1, 1), np.float32)
    batch = padded(small, large, padded_shapes=(None, 3, None), padding_values=7)
    assert batch.dtype == np.float32
    assert batch[..., 0].tolist() == [[[1, 1, 7], [7, 7, 7]], [[1, 7, 7], [1, 7, 7]]]
    assert padded(small, small)[:, :, :, 0].tolist() == [[[1, 1]], [[1, 1]]]


def test_scalars_are_stacked() -> None:
    assert plain(list(Dataset.range(3).padded_batch(2))) == [[0, 1], [2]]
    assert plain(padded(("a", None), ("b", None))) == (["a", "b"], [None, None])


def test_shapes_and_values_are_nested_as_the_elements() -> None:
    elements = [{"a": [1], "b": (2.5, ["x", "y"])}, {"a": [3, 4], "b": (1.5, ["z"])}]
    batch = padded(
        *elements,
        padded_shapes={"b": ((), [None]), "a": [3]},
        padding_values={"a": -1, "b": (None, "pad")},
    )
    assert batch["a"].tolist() == [[1, -1, -1], [3, 4, -1]]
    assert batch["b"][0].tolist() == [2.5, 1.5]
    assert batch["b"][1].tolist() == [["x", "y"], ["z", "pad"]]


def test_none_and_one_value_hold_for_all_below() -> None:
    elements = [([1], ([2, 3], 4)), ([1, 2], ([2], 5))]
    batch = padded(*elements, padded_shapes=([3], None), padding_values=(None, 9))
    assert batch[0].tolist() == [[1, 0, 0], [1, 2, 0]]
    assert batch[1][0].tolist() == [[2, 3], [2, 9]]
    assert padded(*elements, padding_values=-1)[0].tolist() == [[1, -1], [1, 2]]


@pytest.mark.parametrize(
    ("elements", "expected", "dtype"),
    [
        ([[1, 2], [3]], [[1, 2], [3, 0]], np.int64),
        ([[1, 2.5], [3.0]], [[1, 2.5], [3, 0]], np.float64),
        ([[True], [False, True]], [[True, False], [False, True]], np.bool_),
        ([[1j], []], [[1j], [0]], np.complex128),
        ([[], []], [[], []], np.float64),
        ([[], [7]], [[0], [7]], np.int64),
        ([np.array([1], np.int8), []], [[1], [0]], np.int8),
        ([["a", None], ["b"]], [["a", None], ["b", ""]], object),
        ([[b"a"], [b"b", b"c"]], [[b"a", b""], [b"b", b"c"]], object),
        ([[np.str_("a")], []], [["a"], [""]], object),
        ([[np.float32(1)], [np.float32(2)]], [[1], [2]], np.float32),
    ],
)
def test_lists_of_numbers_or_text_are_vectors(elements: Any, expected: Any, dtype: Any) -> None:
    batch = padded(*elements)
    assert batch.dtype == np.dtype(dtype)
    assert batch.tolist() == expected
    assert {type(item) for item in batch.flat}.isdisjoint({np.str_, np.bytes_})


def test_empty_lists_alone_take_the_dtype_of_the_padding_value() -> None:
    assert padded([], [], padding_values=0).dtype == np.int64
    assert padded([], [], padded_shapes=1, padding_values="x").tolist() == [["x"], ["x"]]


def test_a_list_that_holds_structure_is_structure() -> None:
    batch = padded([1, [2, 3]], [4, [5]])
    assert plain(batch) == [[1, 4], [[2, 3], [5, 0]]]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.uint8, 255),
        (np.float32, 0.1),
        (np.float32, -1),
        (np.float16, np.float64(0.5)),
        (np.int32, np.int64(-5)),
        (np.complex64, 1.5),
        (bool, True),
        ("datetime64[s]", np.datetime64("2026-01-01")),
        (object, b"x"),
        ("U3", "abc"),
    ],
)
def test_padding_values_take_the_leaf_s_dtype(dtype: Any, value: Any) -> None:
    batch = padded(np.zeros(1, dtype), padded_shapes=[2], padding_values=value)
    assert batch.dtype == np.dtype(dtype)
    assert batch[0, 1] == (value if dtype is object else np.array(value, dtype))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.uint8, -1),
        (np.uint8, 256),
        (np.int64, 1.5),
        (np.int64, True),
        (np.int64, "x"),
        (np.int8, np.int64(300)),
        (bool, 0),
        (np.float32, 1j),
        (object, 0),
    ],
)
def test_a_padding_value_of_another_dtype_is_refused(dtype: Any, value: Any) -> None:
    array = np.zeros(1, dtype) if dtype is not object else np.array(["a"], object)
    message = re.escape(f"gives {value!r} for the element, whose dtype {array.dtype} does not hold")
    with pytest.raises(InvalidArgumentError, match=message):
        padded(array, padding_values=value)
    with pytest.raises(InvalidArgumentError, match=message):  # with a known spec: when it is built
        Dataset.from_tensors(array).padded_batch(1, padding_values=value)


@pytest.mark.parametrize(
    ("elements", "shapes", "message"),
    [
        ([[1], [1, 2, 3]], [2], r"the element has shape \(3,\) in element 1 of the batch, larger"),
        (
            [{"a": (np.ones((2, 3)),)}],
            {"a": ((2, 2),)},
            (
                r"the leaf \['a'\]\[0\] has shape \(2, 3\) in element 0 of the batch, larger than "
                r"its padded shape \(2, 2\); cut it in a map"
            ),
        ),
        ([[1]], [2, 2], r"shape \(1,\) in element 0 .* padded shape \(2, 2\) cannot hold"),
        ([1, 2], [2], r"shape \(\) in element 0 .* padded shape \(2,\) cannot hold"),
        (
            [np.ones(2), np.ones((2, 1))],
            None,
            r"shape \(2,\) in element 0 of the batch and \(2, 1\) in element 1; .* one number of",
        ),
        ([[1], [1.5]], None, "dtype int64 in element 0 of the batch and float64 in element 1"),
        ([[1, "a"]], None, "the list holds int, str; a list here is a vector"),
        ([[1], [[2]]], None, "the list holds list; a list here is a vector"),
        ([{"a": [2**63]}], None, rf"the list at \['a'\] holds {2**63}, beyond int64"),
        ([[1]], {"a": 1}, r"`padded_shapes` must hold shapes .* got \{'a': 1\}"),
        ([RaggedArray.from_rows([[1]])], None, "the element is a RaggedArray; padded_batch pads"),
        ([(SparseArray.from_dense([1]),)], None, r"the leaf \[0\] is a SparseArray"),
        ([(1, 2)], [3], r"`padded_shapes` must be nested .*: \[3\] is given, .* a tuple of 2"),
        ([{"a": (1,)}], {"a": {"b": 3}}, r"\{'b': 3\} is given at \['a'\], .* a tuple of 1"),
        ([[1], 2], None, "cannot pad: .* one number of dimensions"),
    ],
)
def test_a_padding_error_names_element_leaf_sizes_and_remedy(
    elements: Any, shapes: Any, message: str
) -> None:
    dataset = lists(*elements).padded_batch(len(elements), shapes)
    with pytest.raises((InvalidArgumentError, DataLossError), match=message) as caught:
        list(dataset)
    origin = failure_origin(caught.value)
    assert origin is not None
    assert origin == ("padded_batch", dataset.node.site, 0, "")


def test_an_element_larger_than_its_shape_is_data_loss_and_a_spec_an_invalid_argument() -> None:
    with pytest.raises(DataLossError, match="larger than its padded shape"):
        list(lists([1, 2, 3]).padded_batch(1, [2]))
    with pytest.raises(InvalidArgumentError, match="larger than its padded shape"):
        Dataset.from_tensors([1, 2, 3]).padded_batch(1, [2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "`batch_size`"),
        ({"drop_remainder": 1}, "`drop_remainder`"),
        ({"padded_shapes": "ab"}, "`padded_shapes` must hold shapes"),
        ({"padded_shapes": np.array([3.7])}, "`padded_shapes` must hold shapes"),
        ({"padded_shapes": [5.0]}, "`padded_shapes` must hold shapes"),
        ({"padded_shapes": ["5"]}, "`padded_shapes` must hold shapes"),
        ({"padded_shapes": [-2]}, "`padded_shapes` must hold shapes"),
        ({"padded_shapes": {"a": 1.5j}}, "`padded_shapes` must hold shapes"),
        ({"padding_values": {"a": set()}}, "`padding_values` must hold numbers, text or None"),
        ({"padding_values": np.zeros(2)}, "`padding_values` must hold numbers, text or None"),
    ],
)
def test_wrong_arguments_are_refused_when_the_dataset_is_built(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        lists([1]).padded_batch(**{"batch_size": 2, **arguments})


@pytest.mark.parametrize(
    ("value", "arguments", "message"),
    [
        (np.ones(3), {"padded_shapes": [2]}, "larger than its padded shape"),
        (np.ones(3), {"padded_shapes": []}, r"padded shape \(\) cannot hold"),
        ((1, 2), {"padded_shapes": [2]}, "must be nested as the elements are"),
        ({"a": 1}, {"padding_values": {"b": 1}}, "must be nested as the elements are"),
        (RaggedArray.from_rows([[1]]), {}, "is a RaggedArray"),
        (SparseArray.from_dense([1]), {}, "is a SparseArray"),
    ],
)
def test_a_known_spec_is_checked_when_the_dataset_is_built(
    value: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Dataset.from_tensors(value).padded_batch(2, **arguments)


def test_the_spec_has_the_known_dimensions() -> None:
    spec = {"a": TensorSpec((None, 3), np.uint8), "b": UnknownSpec(), "c": TensorSpec((), object)}
    dataset = Dataset.range(5).map(lambda _: None, element_spec=spec)
    shapes = {"a": (None, None), "b": 5, "c": ()}
    assert dataset.padded_batch(2).element_spec == {
        "a": TensorSpec((None, None, 3), np.uint8),
        "b": UnknownSpec(),
        "c": TensorSpec((None,), object),
    }
    dropped = dataset.padded_batch(2, {**shapes, "a": (7, None)}, drop_remainder=True)
    assert dropped.element_spec["a"] == TensorSpec((2, 7, 3), np.uint8)
    assert (dataset.padded_batch(2).cardinality(), dropped.cardinality()) == (3, 2)
    assert growing(3).repeat().padded_batch(2).cardinality() == -1


def test_verbs_and_the_wire_form_read_the_same_stream() -> None:
    def flaky(x: int) -> Any:
        if x in (5, 6, 17):
            raise KeyError(x)
        return {"tokens": [x] * (x % 5), "label": np.float32(x), "words": ["w"] * (x % 3)}

    def make() -> Dataset:
        padding = {"tokens": -1, "label": None, "words": "-"}
        return Dataset.range(30).map(flaky).padded_batch(4, padding_values=padding)

    found = check_verbs(make)
    assert [position[:2] for position in found if isinstance(position, tuple)] == [
        ("raised", "KeyError"),
        ("raised", "KeyError"),
    ]
    assert len(found) == 8
    parallel = Dataset.range(30).map(flaky, AUTOTUNE)
    assert (
        tape(parallel.padded_batch(4, padding_values={"tokens": -1, "label": 0, "words": "-"}))[3:4]
        == found[3:4]
    )


def test_advance_calls_nothing() -> None:
    called: list[int] = []
    stream = opened(Dataset.range(10**9).map(called.append).padded_batch(10))
    assert stream.advance(10**7) == 10**7
    assert called == []
    stream.close()


def test_batches_are_assembled_where_the_context_says() -> None:
    made: list[tuple[int, ...]] = []

    def allocate(shape: tuple[int, ...], dtype: Any) -> Any:
        made.append(shape)
        return np.empty(shape, dtype)

    stream = opened(lists(([1], 2), ([3, 4], 5)).padded_batch(2), allocate=allocate)
    stream.next()
    stream.close()
    assert made == [(2, 2), (2,)]


class Pair(NamedTuple):
    tokens: Any
    label: Any


@dataclasses.dataclass
class Example:
    tokens: Any
    label: Any


@pytest.mark.parametrize("cls", [Pair, Example])
def test_records_keep_their_class_through_all_of_batching(cls: Any) -> None:
    spec = cls(TensorSpec((None,), np.int64), TensorSpec((), np.int64))
    examples = Dataset.range(6).map(lambda x: cls(np.arange(x % 2 + 1), x), element_spec=spec)
    padded = examples.padded_batch(2, cls([4], ()), cls(-1, None))
    rows = padded.unbatch()
    for dataset in (padded, rows, padded.rebatch(3), rows.batch(2), padded.batch(2).unbatch()):
        assert type(dataset.element_spec) is cls
        elements = list(dataset)
        assert {type(element) for element in elements} == {cls}
        assert np.concatenate([np.ravel(e.label) for e in elements]).tolist() == list(range(6))
        assert {e.tokens.shape[-1] for e in elements} == {4}
    assert padded.element_spec.tokens == TensorSpec((None, 4), np.int64)
    assert rows.element_spec == cls(TensorSpec((4,), np.int64), TensorSpec((), np.int64))
    ragged = list(examples.ragged_batch(4))
    assert [type(batch) for batch in ragged] == [cls] * 2
    assert ragged[1].tokens.to_list() == [[0], [0, 1]]
