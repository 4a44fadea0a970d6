"""Chunks of row numbers, which streams pass on in place of elements that are rows of a table."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Column: TypeAlias = "range | npt.NDArray[np.int64]"
"""Row numbers of a table: a range if evenly spaced, which costs no memory."""


class RowNumbers:
    """A chunk of elements that are rows of a `Table`: their numbers, not their values.

    `RowNumbers` have the length, truth and slices of the list of elements, so that streams that
    only select elements (take, shard, repeat) serve for both.

    Attributes:
        columns: a column for each array of row numbers that the table needs, all of equal length.
    """

    __slots__ = ("columns",)

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, rows: slice) -> "RowNumbers":
        # A list in between takes less time than a generator.
        return RowNumbers(tuple([column[rows] for column in self.columns]))


EMPTY = RowNumbers((range(0),))


def as_array(column: Column) -> npt.NDArray[np.int64]:
    """Return the numbers of a column as an array."""
    if isinstance(column, range):
        return np.arange(column.start, column.stop, column.step, dtype=np.int64)
    return column


def joined(first: RowNumbers, second: RowNumbers) -> RowNumbers:
    """Return the rows of both, which are of the same table."""
    if not first:
        return second
    return RowNumbers(tuple(map(_joined, first.columns, second.columns)))


def _joined(first: Column, second: Column) -> Column:
    # Adjacent ranges stay a range: a batch is then a slice of the arrays, without a gather.
    if isinstance(first, range) and isinstance(second, range):
        step = first.step
        if (len(second) == 1 or second.step == step) and second.start == first[-1] + step:
            return range(first.start, second[-1] + step, step)
    return np.concatenate([as_array(first), as_array(second)])
