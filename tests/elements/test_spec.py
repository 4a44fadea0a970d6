"""Specs of elements, and their encoding."""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from stoker import Dataset
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import (
    RaggedSpec,
    SparseSpec,
    TensorSpec,
    UnknownSpec,
    compatible,
    is_spec,
    spec_from_wire,
    spec_of,
    spec_to_wire,
)
from stoker.errors import InvalidArgumentError

ml_dtypes = pytest.importorskip("ml_dtypes")


class Pair(NamedTuple):
    a: Any
    b: Any


def through_the_wire(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (1, TensorSpec((), np.int64)),
        (True, TensorSpec((), np.bool_)),
        (1.0, TensorSpec((), np.float64)),
        (1j, TensorSpec((), np.complex128)),
        ("a", TensorSpec((), object)),
        (b"a", TensorSpec((), object)),
        (None, TensorSpec((), object)),
        (np.float32(1), TensorSpec((), np.float32)),
        (np.zeros((2, 0), np.uint8), TensorSpec((2, 0), np.uint8)),
        (RaggedArray.from_rows([[1]]), RaggedSpec((1, None), np.int64)),
        (RaggedArray.from_rows([np.zeros((2, 3))] * 2), RaggedSpec((2, None, 3), np.float64)),
        (SparseArray.from_dense(np.eye(2, 3, dtype=np.uint8)), SparseSpec((2, 3), np.uint8)),
        (object(), UnknownSpec()),
    ],
)
def test_spec_of_a_leaf(value: Any, spec: Any) -> None:
    assert spec_of(value) == spec


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype(">i4"),
        np.dtype("M8[ns]"),
        np.dtype("U7"),
        np.dtype(object),
        np.dtype(ml_dtypes.bfloat16),
        np.dtype(ml_dtypes.float8_e4m3fn),
        np.dtype([("a", "i4"), ("b", [("c", "f8", (2, 3))])]),
        np.dtype({"names": ["a"], "formats": ["i2"], "offsets": [6], "itemsize": 16}),
    ],
)
def test_every_dtype_is_encoded_and_decoded(dtype: np.dtype) -> None:
    spec = TensorSpec((), dtype)
    assert spec_from_wire(through_the_wire(spec_to_wire(spec))) == spec


@pytest.mark.parametrize("wire", ["no such", "os.path", 5, {"names": 3}, None, {"base": "i4"}])
def test_a_malformed_dtype_is_an_error(wire: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="not a dtype"):
        spec_from_wire({"kind": "tensor", "shape": [], "dtype": wire})


def test_a_decoded_spec_has_generated_classes() -> None:
    spec = {
        "x": [TensorSpec((None, 3), np.uint8), UnknownSpec()],
        "y": (RaggedSpec((4, None, 2), ">i4"), SparseSpec((None, 7), np.float16)),
        5: Pair(UnknownSpec(), ()),
    }
    back = spec_from_wire(through_the_wire(spec_to_wire(spec)))
    assert back == spec
    assert type(back[5]).__name__ == "Pair"
    assert compatible(back, spec)


@pytest.mark.parametrize("wire", [5, {}, {"kind": "leaf"}, {"kind": "tuple"}, {"kind": "no"}])
def test_a_malformed_spec_is_an_error(wire: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        spec_from_wire(wire)


def test_only_specs_are_encoded() -> None:
    with pytest.raises(InvalidArgumentError, match="int: 3"):
        spec_to_wire({"x": 3})
    assert is_spec((TensorSpec(()), [UnknownSpec(), RaggedSpec(), SparseSpec()]))
    assert not is_spec((TensorSpec(()), 3))


def test_unknown_is_compatible_with_anything_at_any_depth() -> None:
    known = {"x": (TensorSpec((2,)), TensorSpec(()))}
    assert compatible(UnknownSpec(), known)
    assert compatible(known, {"x": UnknownSpec()})
    assert compatible(known, {"x": (UnknownSpec(), TensorSpec(()))})


@pytest.mark.parametrize(
    "other",
    [
        TensorSpec((2, 4)),
        TensorSpec((2,)),
        TensorSpec((None, 3), np.float64),
        (TensorSpec((None, 3)),),
    ],
)
def test_shape_dtype_and_structure_make_specs_incompatible(other: Any) -> None:
    spec = TensorSpec((None, 3), np.float32)
    assert compatible(spec, TensorSpec((7, 3), np.float32))
    assert not compatible(spec, other)


@pytest.mark.parametrize("cls", [RaggedSpec, SparseSpec])
def test_array_specs_of_different_kinds_are_incompatible(cls: Any) -> None:
    spec = cls((None, None), np.float32)
    assert compatible(spec, cls((7, None), np.float32))
    assert not compatible(spec, cls((None, None), np.float64))
    assert not compatible(spec, cls((None, None, 2), np.float32))
    for other in {TensorSpec, RaggedSpec, SparseSpec} - {cls}:
        assert not compatible(spec, other((None, None), np.float32))
        assert not compatible(other((None, None), np.float32), spec)
    assert compatible(spec, UnknownSpec())


@pytest.mark.parametrize("shape", [(), (None,), (2, 3), (None, 0), 5])
def test_the_second_dimension_of_a_ragged_spec_is_none(shape: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        RaggedSpec(shape)


@pytest.mark.parametrize("wire", [[2, 3], [None]])
def test_a_malformed_ragged_spec_is_an_error(wire: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        spec_from_wire({"kind": "ragged", "shape": wire, "dtype": "<i4"})


def test_sources_of_ragged_and_sparse_arrays_have_their_specs() -> None:
    value = (RaggedArray.from_rows([[1], [2, 3]]), SparseArray.from_dense(np.eye(2, 3)))
    whole = (RaggedSpec((2, None), np.int64), SparseSpec((2, 3), np.float64))
    assert Dataset.from_tensors(value).element_spec == whole
    slices = Dataset.from_tensor_slices(value)
    assert slices.element_spec == (TensorSpec((None,), np.int64), SparseSpec((3,), np.float64))
    for element in slices:
        assert compatible(slices.element_spec, spec_of(element))
    sparse = Dataset.from_tensor_slices(value[1])
    assert sparse.batch(2).element_spec == SparseSpec((None, 3), np.float64)
    assert sparse.batch(2, drop_remainder=True).element_spec == SparseSpec((2, 3), np.float64)


@pytest.mark.parametrize(("shape", "dtype"), [(3, "f4"), ((-1,), "f4"), ((), "none"), ("ab", "f4")])
def test_a_spec_checks_its_arguments(shape: Any, dtype: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        TensorSpec(shape, dtype)


def test_a_spec_of_several_ragged_dimensions() -> None:
    spec = spec_of(RaggedArray.from_rows([[np.zeros((2, 3)), np.zeros((1, 3))], []]))
    assert spec == RaggedSpec((2, None, None, 3), np.float64, ragged_rank=2)
    assert spec != RaggedSpec((2, None, None, 3), np.float64)
    assert repr(spec) == "RaggedSpec(shape=(2, None, None, 3), dtype=float64, ragged_rank=2)"
    assert spec_from_wire(spec_to_wire(spec)) == spec
    assert not compatible(spec, RaggedSpec((2, None, None, 3), np.float64))
    for shape, rank in (((2, None), 2), ((2, None, 3), 2), ((2, None), 0)):
        with pytest.raises(InvalidArgumentError, match="ragged dimensions"):
            RaggedSpec(shape, np.float64, rank)


def test_a_key_that_is_not_utf_8_is_named() -> None:
    spec = {"a": [{"caf\udce9": TensorSpec((), np.int64)}]}
    with pytest.raises(InvalidArgumentError, match=r"the key 'caf\\udce9' of an element_spec"):
        spec_to_wire(spec)
