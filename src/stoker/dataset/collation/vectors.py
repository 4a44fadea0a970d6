"""Lists of numbers or text as vectors, for batches in which lengths vary."""

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.dataset.collation.leaves import TEXT
from stoker.errors import InvalidArgumentError

_Vector = npt.NDArray[Any]

# struct packs a list in half the time of a NumPy conversion (7 and 14 ns an item).
_PACKED: dict[type, tuple[str, np.dtype[Any]]] = {
    int: ("q", np.dtype(np.int64)),
    float: ("d", np.dtype(np.float64)),
}
_NUMBERS = (int, float, complex, np.generic)  # a bool is an int
_INT64 = np.iinfo(np.int64)


def is_vector(value: list[Any]) -> bool:
    """Return True for a list of numbers or text, or an empty list; False for structure."""
    return all(issubclass(kind, (*_NUMBERS, *TEXT)) for kind in set(map(type, value)))


def vectors(values: Sequence[Any], name: str, empty: npt.DTypeLike = np.float64) -> list[Any]:
    """Return `values` with lists replaced by vectors, which may be read-only.

    Args:
        values: leaves of consecutive elements.
        name: accessor of the leaf, for errors.
        empty: dtype of empty lists if all are empty; otherwise empty lists get the dtype of the
            rest.

    Raises:
        InvalidArgumentError: if a list is structure, mixes numbers with text or has an int beyond
            int64.
    """
    arrays = [vector(value, name) if type(value) is list and value else value for value in values]
    if list in set(map(type, arrays)):
        # An empty list shows no dtype, and takes the dtype of the lists beside.
        dtypes = (array.dtype for array in arrays if isinstance(array, np.ndarray))
        nothing = np.empty(0, next(dtypes, np.dtype(empty)))
        arrays = [nothing if type(array) is list else array for array in arrays]
    return arrays


def vector(value: list[Any], name: str) -> _Vector:
    """Return a list as a vector, which may be read-only; float64 if the list is empty.

    Raises:
        InvalidArgumentError: if the list is structure, mixes numbers with text or has an int beyond
            int64.
    """
    if value and (packed := _PACKED.get(type(value[0]))) is not None:
        code, dtype = packed
        with suppress(struct.error, OverflowError):
            return np.frombuffer(struct.pack(f"{len(value)}{code}", *value), dtype)
    kinds = set(map(type, value))
    if kinds and all(issubclass(kind, TEXT) for kind in kinds):
        return write_text(np.empty(len(value), object), value)
    called = f"the list at {name}" if name else "the list"
    if any(issubclass(kind, TEXT) or not issubclass(kind, _NUMBERS) for kind in kinds):
        raise InvalidArgumentError(
            f"cannot batch: {called} holds {', '.join(sorted(k.__name__ for k in kinds))}; a list "
            "here is a vector of numbers or of text, all of one kind: return an array or a tuple "
            "from the map before"
        )
    array = np.array(value)
    if array.dtype == object or (array.dtype == np.uint64 and int in kinds):
        beyond = next(v for v in value if not _INT64.min <= v <= _INT64.max)
        raise InvalidArgumentError(
            f"cannot batch: {called} holds {beyond}, beyond int64; return a NumPy array of a dtype "
            "that holds it (np.uint64, np.float64) from the map before"
        )
    return array


def write_text(out: _Vector, values: Sequence[Any]) -> _Vector:
    """Write str, bytes and None into an object array; return the array.

    np.str_ and np.bytes_ become str and bytes.
    """
    out[:] = [
        str(v) if isinstance(v, np.str_) else bytes(v) if isinstance(v, np.bytes_) else v
        for v in values
    ]
    return out
