"""Leaves that can be in a batch, and the errors of leaves that cannot."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stoker.elements.foreign import array_of
from stoker.elements.ragged import RaggedArray
from stoker.errors import InvalidArgumentError

NUMBERS: dict[type, np.dtype[Any]] = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
TEXT = (str, bytes, type(None))


def is_array_like(value: Any) -> bool:
    """Return whether `value` is an array, or an array of another library."""
    # Images and tensors of many libraries have these attributes.
    cls = type(value)
    if cls in NUMBERS or isinstance(value, (*TEXT, np.generic)):
        return False
    return hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def as_array(value: Any, name: str) -> Any:
    """Return `value` as an object with shape and dtype.

    Raises:
        InvalidArgumentError: if `value` cannot be in a batch.
    """
    # NumPy's text scalars have a fixed length; text becomes objects, of any length.
    if isinstance(value, np.ndarray | np.generic) and not isinstance(value, np.str_ | np.bytes_):
        return value
    # In the order of NUMBERS: a bool is an int.
    for kind, dtype in NUMBERS.items():
        if isinstance(value, kind):
            try:
                return dtype.type(value)
            except OverflowError:
                raise beyond_int64(value, name) from None
    if isinstance(value, TEXT):
        return np.array(value, dtype=object)
    if is_array_like(value):
        return array_of(value, name)
    if isinstance(value, RaggedArray):
        raise InvalidArgumentError(
            f"cannot batch: {leaf_called(name)} is a RaggedArray in one element and another value "
            "in another; return a RaggedArray for all or for none of them from the map before"
        )
    raise InvalidArgumentError(
        f"cannot batch: {leaf_called(name)} is a {type(value).__module__}."
        f"{type(value).__qualname__}; return arrays, numbers, bool, str, bytes or None, nested in "
        "tuples, lists, dicts, namedtuples or dataclasses, from the map before batch"
    )


def check_ranks(arrays: Sequence[Any], name: str, what: str, remedy: str) -> None:
    """Check that the leaves of a batch, which are at `name`, have one dtype and rank.

    Args:
        arrays: the leaves.
        name: accessor of the leaf.
        what: the beginning of the error of leaves of different rank.
        remedy: the end of that error.

    Raises:
        InvalidArgumentError: if the leaves differ in dtype or rank.
    """
    first = arrays[0]
    for i, array in enumerate(arrays):
        # Arrays mostly share the dtype object, and comparing identities costs least.
        if array.dtype is not first.dtype and array.dtype != first.dtype:
            raise mismatch(first, array, i, name)
        if array.ndim != first.ndim:
            raise InvalidArgumentError(
                f"{what}: {leaf_called(name)} has shape {first.shape} in element 0 of the batch "
                f"and {array.shape} in element {i}; {remedy}"
            )


def leaf_called(name: str) -> str:
    """Return the words by which errors refer to the leaf at `name`."""
    return f"the leaf {name}" if name else "the element"


def beyond_int64(value: object, name: str) -> InvalidArgumentError:
    """Return the error of an int that no int64 holds."""
    return InvalidArgumentError(
        f"cannot batch: {leaf_called(name)} holds {value}, beyond int64; return a NumPy scalar of "
        "a dtype that holds it (np.uint64, np.float64), or text, from a map before batch"
    )


def mismatch(first: Any, other: Any, i: int, name: str) -> InvalidArgumentError:
    """Return the error of element `i` of a batch, whose leaf differs from that of element 0."""
    if first.dtype != other.dtype:
        what = "dtype"
        values = (first.dtype, other.dtype)
        # NumPy's text dtypes have a fixed length; object arrays hold text of any length.
        to = "object" if any(dtype.kind in "USO" for dtype in values) else "np.float32"
        remedy = f"cast it to one dtype in a map before batch, as in `.astype({to})`"
    else:
        what = "shape"
        remedy = (
            "crop, resize or pad it to one shape in a map before batch, or use padded_batch or "
            "ragged_batch"
        )
        values = (first.shape, other.shape)
    return InvalidArgumentError(
        f"cannot batch: {leaf_called(name)} has {what} {values[0]} in element 0 of the batch and "
        f"{values[1]} in element {i}; {remedy}"
    )
