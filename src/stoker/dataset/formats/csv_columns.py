"""Columns of CSV files: their types and the values of missing fields."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, islice, pairwise
from typing import Any

import msgspec
import numpy as np

from stoker.dataset import arguments
from stoker.errors import InvalidArgumentError

_PYTHON_TYPES = (str, bytes, int, float)
_DTYPES = {"str": object, "bytes": object, "int": np.int64, "float": np.float64}


class Column(msgspec.Struct, frozen=True):
    """Type of a column, and the value of its missing fields.

    Attributes:
        kind: ``"str"``, ``"bytes"``, ``"int"``, ``"float"`` or the `str` of a NumPy dtype.
        required: a missing field is an error.
        default: the value of a missing field otherwise; bytes as text in Latin-1.
    """

    kind: str
    required: bool
    default: str | int | float | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a batch of the column."""
        return np.dtype(_DTYPES.get(self.kind, self.kind))

    @property
    def type_name(self) -> str:
        """Name of the type in errors."""
        return self.kind if self.kind in _DTYPES else self.dtype.name

    def missing(self) -> Any:
        """Return the value of a missing field."""
        if self.kind == "bytes" and isinstance(self.default, str):
            return self.default.encode("latin-1")
        if self.kind in _DTYPES or self.default is None:
            return self.default
        return self.dtype.type(self.default)

    @property
    def is_number(self) -> bool:
        """Fields are parsed as numbers."""
        return self.kind not in ("str", "bytes")

    def converter(self) -> Callable[[Sequence[bytes]], list[Any]]:
        """Return a function that converts fields, or raises ValueError or OverflowError.

        The function accepts numbers as Python does, also with underscores between digits.
        """
        if self.kind == "str":
            return lambda fields: list(map(bytes.decode, fields))
        if self.kind == "bytes":
            return list
        if self.kind == "int":
            return _integers
        if self.kind == "float":
            return lambda fields: list(map(float, fields))
        return partial(_scalars, self.dtype)


def column_of(default: Any, name: str) -> Column:
    """Return the column that an entry of `record_defaults` describes.

    Args:
        default: a type, if fields are required, or the value of a missing field. As in tf.data an
            array or list of a single value means this value, and an empty array its dtype.
        name: name of the entry in errors.

    Raises:
        InvalidArgumentError: if `default` is neither a supported type nor a value of such a type.
    """
    value = default
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, np.ndarray) and value.size <= 1:
        value = value.reshape(-1)[0] if value.size else value.dtype
    if isinstance(value, bytes):  # np.bytes_ too
        return Column(kind="bytes", required=False, default=value.decode("latin-1"))
    if type(value) in _PYTHON_TYPES:
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise InvalidArgumentError(f"`{name}` is {value}, beyond int64; give a float")
        return Column(kind=type(value).__name__, required=False, default=value)
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return Column(kind=value.__name__, required=True)
    if isinstance(value, np.generic) and (kind := _kind_of_dtype(value.dtype)):
        return Column(kind=kind, required=False, default=value.item())
    is_dtype = isinstance(value, np.dtype) or (
        isinstance(value, type) and issubclass(value, np.generic)
    )
    if is_dtype and (kind := _kind_of_dtype(np.dtype(value))):
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
        return dtype.newbyteorder("=").str
    return None


def _integers(fields: Sequence[bytes]) -> list[int]:
    values = list(map(int, fields))
    if min(values) < -(2**63) or max(values) >= 2**63:
        raise OverflowError
    return values


def _scalars(dtype: np.dtype[Any], fields: Sequence[bytes]) -> list[Any]:
    if dtype.kind != "f":
        return list(np.array(list(map(int, fields)), dtype))
    with np.errstate(over="ignore"):
        return list(np.array(list(map(float, fields))).astype(dtype))


def positions_read(
    columns: int, select_cols: Sequence[int] | None, exclude_cols: Sequence[int] | None
) -> tuple[tuple[int, ...], int | None]:
    """Return the number of each column in a row, and the most fields of a row; ``None``: any.

    Args:
        columns: number of entries of `record_defaults`.
        select_cols: numbers of the columns to read, or ``None``.
        exclude_cols: numbers of the columns not to read, or ``None``.

    Raises:
        InvalidArgumentError: if both are given, an argument is not ascending ints of 0 or more,
            or `select_cols` has not an entry for each column.
    """
    if select_cols is not None and exclude_cols is not None:
        raise InvalidArgumentError(
            f"Either select_cols or exclude_cols should be empty; got {select_cols!r} and "
            f"{exclude_cols!r}"
        )
    if select_cols is not None:
        return _selected(select_cols, columns), None
    excluded = () if exclude_cols is None else _ascending("exclude_cols", exclude_cols)
    left = (column for column in count() if column not in excluded)
    # An excluded column after the last column read may be absent, as in tf.data.
    *positions, next_column = islice(left, columns + 1)
    return tuple(positions), next_column


def _selected(value: Sequence[int], columns: int) -> tuple[int, ...]:
    selected = _ascending("select_cols", value)
    if len(selected) != columns:
        raise InvalidArgumentError(
            f"`select_cols` must have an entry for each of the {columns} in `record_defaults`; "
            f"got {len(selected)}"
        )
    return selected


def _ascending(name: str, value: Sequence[int]) -> tuple[int, ...]:
    numbers = tuple(arguments.integers(name, value, minimum=0, what="a list of ints, 0 or more"))
    if any(a >= b for a, b in pairwise(numbers)):
        raise InvalidArgumentError(f"`{name}` must ascend; got {list(numbers)}")
    return numbers
