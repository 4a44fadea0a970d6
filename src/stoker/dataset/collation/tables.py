"""Tables of arrays and of numbers, and their combination by zip."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.dataset.collation.collate import collate
from stoker.dataset.collation.rows import row_builder
from stoker.dataset.streams.rows.row_numbers import Column, as_array
from stoker.dataset.tree.table import Allocate, Table
from stoker.elements.sizes import PLAIN_BYTES
from stoker.elements.structure import flatten, packer

_Rows = npt.NDArray[np.int64]


class ArrayTable(Table):
    """The rows of a structure of arrays.

    Args:
        structure: a nest of read-only arrays of equal length, which is not 0.
    """

    def __init__(self, structure: Any) -> None:
        self._arrays = [_ArrayRows(array) for array in flatten(structure)]
        self._pack = packer(structure)
        self._build = row_builder(structure)
        self.element_bytes = sum(array.row_bytes for array in self._arrays)

    def batch(self, columns: Sequence[Column], allocate: Allocate) -> Any:
        [rows] = columns
        if isinstance(rows, range):
            cut = slice(rows.start, rows.stop, rows.step)
            return self._pack([array.cut(cut, allocate) for array in self._arrays])
        return self._pack([array.take(rows, allocate) for array in self._arrays])

    def elements(self, columns: Sequence[Column]) -> list[Any]:
        [rows] = columns
        return self._build([array.elements(rows) for array in self._arrays])


class _ArrayRows:
    """The rows of an array; a batch has the dtype of a stack of rows."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        self._shape = array.shape[1:]
        # Of text and other objects, a batch is not always an array of the same dtype.
        self._is_object = array.ndim == 1 and array.dtype.kind in "OSTU"
        # The scalars of an array of foreign byte order have the machine's.
        self._dtype: np.dtype[Any] = array.dtype if self._is_object else array[0].dtype
        self.row_bytes = PLAIN_BYTES + array.nbytes // len(array)
        flags = array.flags
        # `take` would copy the whole array otherwise.
        self._can_take = flags.c_contiguous and flags.aligned and self._dtype == array.dtype

    def cut(self, rows: slice, allocate: Allocate) -> Any:
        """Return the batch of evenly spaced rows."""
        selected = self._array[rows]
        if self._is_object:
            return collate(list(selected), allocate)
        out = allocate(selected.shape, self._dtype)
        out[...] = selected
        return out

    def take(self, rows: _Rows, allocate: Allocate) -> Any:
        """Return the batch of any rows."""
        if self._is_object:
            return collate(list(self._array[rows]), allocate)
        out = allocate((len(rows), *self._shape), self._dtype)
        if self._can_take:
            # All numbers are valid; with the mode "raise" NumPy copies the result once more.
            self._array.take(rows, 0, out, "clip")
        else:
            out[...] = self._array[rows]
        return out

    def elements(self, rows: Column) -> list[Any]:
        if isinstance(rows, range):
            return list(self._array[rows.start : rows.stop : rows.step])
        if self._array.ndim == 1:
            return list(self._array[rows])
        return list(map(self._array.__getitem__, rows.tolist()))


class NumberTable(Table):
    """The integers ``start + step * row``, as an int64 array.

    Args:
        start: the integer of row 0.
        step: the difference of two rows.
    """

    element_bytes = PLAIN_BYTES

    def __init__(self, start: int, step: int) -> None:
        self._start = start
        self._step = step

    def batch(self, columns: Sequence[Column], allocate: Allocate) -> Any:
        [rows] = columns
        numbers = as_array(rows)
        # Row numbers of range(n), the most common source of numbers, are the numbers.
        if self._start or self._step != 1:
            numbers = numbers * self._step + self._start
        out = allocate((len(rows),), np.dtype(np.int64))
        out[...] = numbers
        return out

    def elements(self, columns: Sequence[Column]) -> list[Any]:
        [rows] = columns
        numbers: list[Any] = (as_array(rows) * self._step + self._start).tolist()
        return numbers


class ZippedTable(Table):
    """Rows of several tables side by side.

    Args:
        tables: the tables; each reads its own columns.
        template: a structure with a leaf for each table.
    """

    def __init__(self, tables: Sequence[Table], template: Any) -> None:
        self._tables = tables
        self._pack = packer(template)
        self._build = row_builder(template)
        self.width = sum(table.width for table in tables)
        self.element_bytes = sum(table.element_bytes for table in tables)

    def batch(self, columns: Sequence[Column], allocate: Allocate) -> Any:
        parts = self._parts(columns)
        return self._pack([table.batch(part, allocate) for table, part in parts])

    def elements(self, columns: Sequence[Column]) -> list[Any]:
        return self._build([table.elements(part) for table, part in self._parts(columns)])

    def _parts(self, columns: Sequence[Column]) -> Iterator[tuple[Table, Sequence[Column]]]:
        first = 0
        for table in self._tables:
            yield table, columns[first : first + table.width]
            first += table.width
