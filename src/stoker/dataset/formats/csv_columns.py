"""The columns of CSV files: their types, and what stands for a missing field."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from stoker.elements.dtypes import dtype_from_wire, dtype_to_wire
from stoker.elements.spec import Spec, TensorSpec
from stoker.errors import InvalidArgumentError

_PYTHON: dict[str, type] = {"str": str, "bytes": bytes, "int": int, "float": float}


class Column(msgspec.Struct, frozen=True):
    """A column: its type, and what stands for a field that is missing.

    Attributes:
        kind: ``"str"``, ``"bytes"``, ``"int"``, ``"float"`` or a NumPy dtype in its wire form.
        required: a missing field is an error.
        default: the value of a missing field otherwise; bytes as text of the same code points.
    """

    kind: str
    required: bool
    default: str | int | float | None = None

    @property
    def type_name(self) -> str:
        """How users call the type."""
        return self.kind if self.kind in _PYTHON else dtype_from_wire(self.kind).name

    def spec(self) -> Spec:
        """Of a field."""
        python = {"int": np.dtype(np.int64), "float": np.dtype(np.float64)}
        if self.kind in _PYTHON:
            return TensorSpec((), python.get(self.kind, np.dtype(object)))
        return TensorSpec((), dtype_from_wire(self.kind))

    def missing(self) -> Any:
        """The value of a missing field."""
        if self.kind == "bytes" and isinstance(self.default, str):
            return self.default.encode("latin-1")
        if self.kind in _PYTHON or self.default is None:
            return self.default
        return dtype_from_wire(self.kind).type(self.default)

    def converter(self) -> Callable[[bytes], Any]:
        """From a field's bytes to its value; raises ValueError or OverflowError."""
        if self.kind in _PYTHON:
            return _CONVERTERS[self.kind]
        dtype = dtype_from_wire(self.kind)
        if dtype.kind == "f":
            return partial(_rounded, dtype.type, _least_infinite(dtype))
        return partial(_integer, dtype.type)

    def column_converter(self) -> Callable[[Sequence[bytes]], list[Any]]:
        """What `converter` makes of each of many fields without underscores, at once."""
        if self.kind in _PYTHON:
            return _COLUMN_CONVERTERS[self.kind]
        return partial(_numbers, dtype_from_wire(self.kind))


def column_of(default: Any, name: str) -> Column:
    """The column that an entry of `record_defaults` means.

    Args:
        default: a type, if fields are required, or the value of a missing field. As in tf.data an
            array or list of one value is that value, and an empty array its dtype.
        name: how to write it in errors.

    Raises:
        InvalidArgumentError: it means none.
    """
    value = default
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, np.ndarray) and value.size <= 1:
        value = value.reshape(-1)[0] if value.size else value.dtype
    kind: str | None
    if isinstance(value, bytes):  # np.bytes_ too
        return Column(kind="bytes", required=False, default=value.decode("latin-1"))
    if type(value) in _PYTHON.values():
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise InvalidArgumentError(f"`{name}` is {value}, beyond int64; give a float")
        return Column(kind=type(value).__name__, required=False, default=value)
    if isinstance(value, np.generic):
        kind = _kind_of_dtype(value.dtype)
        if kind is not None:
            return Column(kind=kind, required=False, default=value.item())
    elif isinstance(value, type) and value in _PYTHON.values():
        return Column(kind=value.__name__, required=True)
    elif isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        kind = _kind_of_dtype(np.dtype(value))
        if kind is not None:
            return Column(kind=kind, required=True)
    raise InvalidArgumentError(
        f"`{name}` must be str, bytes, int, float or a NumPy dtype of ints or floats, or a value "
        f"of one of these for a missing field; got {default!r}"
    )


def _kind_of_dtype(dtype: np.dtype[Any]) -> str | None:
    if dtype.kind in "UO":
        return "str"
    if dtype.kind == "S":
        return "bytes"
    if dtype.kind in "iuf" and dtype.itemsize <= 8 and dtype.type.__module__ == "numpy":
        return str(dtype_to_wire(dtype.newbyteorder("=")))
    return None


def _least_infinite(dtype: np.dtype[Any]) -> float:
    """The least number that is rounded to infinity: half a step beyond the greatest."""
    info = np.finfo(dtype)
    if dtype.itemsize == 8:
        return math.inf
    return float(2.0**info.maxexp - 2.0 ** (info.maxexp - info.nmant - 2))


def _rounded(scalar: Callable[[float], Any], least_infinite: float, field: bytes) -> Any:
    value = _to_float(field)
    if abs(value) >= least_infinite:  # where NumPy would warn
        value = math.copysign(math.inf, value)
    return scalar(value)


def _integer(scalar: Callable[[int], Any], field: bytes) -> Any:
    return scalar(_to_int(field))


def _to_int(field: bytes) -> int:
    if b"_" in field:  # Python's own grouping of digits
        raise ValueError
    return int(field)


def _to_int64(field: bytes) -> int:
    value = _to_int(field)
    if not -(2**63) <= value < 2**63:
        raise OverflowError
    return value


def _to_float(field: bytes) -> float:
    if b"_" in field:
        raise ValueError
    return float(field)


_CONVERTERS: dict[str, Callable[[bytes], Any]] = {
    "str": bytes.decode,
    "bytes": bytes,
    "int": _to_int64,
    "float": _to_float,
}


def _numbers(dtype: np.dtype[Any], fields: Sequence[bytes]) -> list[Any]:
    if dtype.kind != "f":
        return list(np.array(list(map(int, fields)), dtype))
    with np.errstate(over="ignore"):
        return list(np.array(list(map(float, fields))).astype(dtype))


def _ints(fields: Sequence[bytes]) -> list[Any]:
    values = list(map(int, fields))
    if min(values) < -(2**63) or max(values) >= 2**63:
        raise OverflowError
    return values


def _mapped(function: Callable[[bytes], Any]) -> Callable[[Sequence[bytes]], list[Any]]:
    return lambda fields: list(map(function, fields))


_COLUMN_CONVERTERS: dict[str, Callable[[Sequence[bytes]], list[Any]]] = {
    "str": _mapped(bytes.decode),
    "bytes": list,
    "int": _ints,
    "float": _mapped(float),
}
