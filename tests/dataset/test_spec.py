"""What is known of elements, and how it travels."""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from stoker.dataset.ragged import RaggedArray
from stoker.dataset.spec import (
    TensorSpec,
    UnknownSpec,
    compatible,
    dtype_from_wire,
    dtype_to_wire,
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
        (RaggedArray.from_rows([[1]]), UnknownSpec()),
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
def test_every_dtype_travels(dtype: np.dtype) -> None:
    assert dtype_from_wire(through_the_wire(dtype_to_wire(dtype))) == dtype


@pytest.mark.parametrize("wire", ["no such", "os.path", 5, {"names": 3}, None, {"base": "i4"}])
def test_a_malformed_dtype_is_an_error(wire: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="not a dtype"):
        dtype_from_wire(wire)


def test_a_nested_spec_travels_and_gets_generated_classes() -> None:
    spec = {"x": [TensorSpec((None, 3), np.uint8), UnknownSpec()], 5: Pair(UnknownSpec(), ())}
    back = spec_from_wire(through_the_wire(spec_to_wire(spec)))
    assert back == spec
    assert type(back[5]).__name__ == "Pair"
    assert compatible(back, spec)


@pytest.mark.parametrize("wire", [5, {}, {"kind": "leaf"}, {"kind": "tuple"}, {"kind": "no"}])
def test_a_malformed_spec_is_an_error(wire: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        spec_from_wire(wire)


def test_only_specs_travel() -> None:
    with pytest.raises(InvalidArgumentError, match="int: 3"):
        spec_to_wire({"x": 3})
    assert is_spec((TensorSpec(()), [UnknownSpec()]))
    assert not is_spec((TensorSpec(()), 3))


def test_unknown_agrees_with_anything_at_any_depth() -> None:
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
def test_known_specs_disagree_in_shape_dtype_and_structure(other: Any) -> None:
    spec = TensorSpec((None, 3), np.float32)
    assert compatible(spec, TensorSpec((7, 3), np.float32))
    assert not compatible(spec, other)


@pytest.mark.parametrize(("shape", "dtype"), [(3, "f4"), ((-1,), "f4"), ((), "none"), ("ab", "f4")])
def test_a_spec_checks_its_arguments(shape: Any, dtype: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        TensorSpec(shape, dtype)
