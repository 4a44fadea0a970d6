"""Tables of arrays and of numbers, and their combination by zip."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.dataset.collation.vectors import write_text
from stoker.dataset.streams.row_numbers import Column, as_array
from stoker.dataset.tree.table import Allocate, Table
from stoker.elements.structure import flatten, is_leaf, pack_like


class ArrayTable(Table):
    """The rows of a structure of arrays.

    Args:
        structure: a nest of arrays of one length, which is not 0.
    """

    def __init__(self, structure: Any) -> None:
        self._structure = structure
        self._is_array = is_leaf(structure)
        self._arrays = [_ArrayRows(array) for array in flatten(structure)]

    def batch(self, columns: Sequence[Column], allocate: Allocate) -> Any:
        [rows] = columns
        batches = [array.batch(rows, allocate) for array in self._arrays]
        return batches[0] if self._is_array else pack_like(self._structure, batches)


class _ArrayRows:
    """The rows of one array; a batch has the dtype that stacking them has."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        self._shape = array.shape[1:]
        self._is_text = array.ndim == 1 and array.dtype.kind in "OSU"
        # The scalars of an array of foreign byte order have the machine's.
        self._dtype: np.dtype[Any] = array.dtype if self._is_text else array[0].dtype
        flags = array.flags
        # `take` would copy the whole array otherwise.
        self._can_take = flags.c_contiguous and flags.aligned and self._dtype == array.dtype

    def batch(self, rows: Column, allocate: Allocate) -> npt.NDArray[Any]:
        array = self._array
        if self._is_text:
            selected = array[_slice(rows)] if isinstance(rows, range) else array[rows]
            return write_text(allocate((len(rows),), np.dtype(object)), selected.tolist())
        out = allocate((len(rows), *self._shape), self._dtype)
        if isinstance(rows, range):
            out[...] = array[_slice(rows)]
        elif self._can_take:
            # All numbers are valid; with the mode "raise" NumPy copies the result once more.
            array.take(rows, 0, out, "clip")
        else:
            out[...] = array[rows]
        return out


def _slice(rows: range) -> slice:
    return slice(rows.start, rows.stop, rows.step)


class NumberTable(Table):
    """The integers ``start + step * row``, as an int64 array.

    Args:
        start: the integer of row 0.
        step: the difference of two rows.
    """

    def __init__(self, start: int, step: int) -> None:
        self._start = start
        self._step = step

    def batch(self, columns: Sequence[Column], allocate: Allocate) -> Any:
        [rows] = columns
        numbers = as_array(rows)
        if self._start or self._step != 1:
            numbers = numbers * self._step + self._start
        out = allocate((len(rows),), np.dtype(np.int64))
        out[...] = numbers
        return out


class ZippedTable(Table):
    """Rows of several tables side by side.

    Args:
        tables: the tables; each reads its own columns.
        template: a structure with a leaf for each table.
    """

    def __init__(self, tables: Sequence[Table], template: Any) -> None:
        self._tables = tables
        self._template = template
        self.width = sum(table.width for table in tables)

    def batch(self, columns: Sequence[Column], allocate: Allocate) -> Any:
        batches, first = [], 0
        for table in self._tables:
            batches.append(table.batch(columns[first : first + table.width], allocate))
            first += table.width
        return pack_like(self._template, batches)
