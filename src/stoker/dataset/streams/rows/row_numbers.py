"""Chunks of row numbers, which streams pass on in place of elements that are rows of a table."""

from collections.abc import Sequence
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
    return concatenated([first, second]) if first else second


def concatenated(parts: Sequence[RowNumbers]) -> RowNumbers:
    """Return the rows of all parts, which are of the same table; at least one part.

    No part but the only one is empty.
    """
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part.columns for part in parts), strict=True)
    return RowNumbers(tuple([_concatenated(column) for column in columns]))


def _concatenated(parts: Sequence[Column]) -> Column:
    # Adjacent ranges stay a range: a batch is then a slice of the arrays, without a gather.
    first = parts[0]
    if isinstance(first, range):
        start, step, stop = first.start, first.step, first[-1] + first.step
        for part in parts[1:]:
            if not isinstance(part, range) or part.start != stop:
                break
            if len(part) > 1 and part.step != step:
                break
            stop = part[-1] + step
        else:
            return range(start, stop, step)
    return np.concatenate([as_array(part) for part in parts])
