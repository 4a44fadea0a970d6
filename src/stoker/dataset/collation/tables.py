"""Tables of arrays and of numbers, and their combination by zip."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.dataset.collation.vectors import write_text
from stoker.dataset.streams.row_numbers import Column, as_array
from stoker.dataset.tree.table import Allocate, Table
from stoker.elements.structure import flatten, packer

_Rows = npt.NDArray[np.int64]


class ArrayTable(Table):
    """The rows of a structure of arrays.

    Args:
        structure: a nest of arrays of one length, which is not 0.
    """

    def __init__(self, structure: Any) -> None:
        self._arrays = [_ArrayRows(array) for array in flatten(structure)]
        self._pack = packer(structure)

    def batch(self, columns: Sequence[Column], allocate: Allocate) -> Any:
        [rows] = columns
        selected = slice(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows
        return self._pack([array.batch(selected, len(rows), allocate) for array in self._arrays])


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

    def batch(self, rows: "slice | _Rows", count: int, allocate: Allocate) -> npt.NDArray[Any]:
        array = self._array
        if self._is_text:
            return write_text(allocate((count,), np.dtype(object)), array[rows].tolist())
        out = allocate((count, *self._shape), self._dtype)
        if self._can_take and not isinstance(rows, slice):
            # All numbers are valid; with the mode "raise" NumPy copies the result once more.
            array.take(rows, 0, out, "clip")
        else:
            out[...] = array[rows]
        return out


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
        self._pack = packer(template)
        self.width = sum(table.width for table in tables)

    def batch(self, columns: Sequence[Column], allocate: Allocate) -> Any:
        batches, first = [], 0
        for table in self._tables:
            batches.append(table.batch(columns[first : first + table.width], allocate))
            first += table.width
        return self._pack(batches)
