"""Arrays with rows of different lengths."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True, eq=False)
class RaggedArray:
    """Rows of different lengths, concatenated; as tf.RaggedTensor with one ragged dimension.

    Attributes:
        values: all rows' items, shape ``(items, ...)``, any dtype.
        row_splits: the rows' boundaries, int64, shape ``(rows + 1,)``: row i is
            ``values[row_splits[i]:row_splits[i + 1]]``.

    Raises:
        InvalidArgumentError: if `values` has no dimension, or `row_splits` does not rise from 0 to
            the number of items.

    Example:
        >>> ragged = RaggedArray.from_rows([[1, 2], [], [3]])
        >>> len(ragged), ragged.to_list()
        (3, [[1, 2], [], [3]])
    """

    __stoker_leaf__: ClassVar[bool] = True

    values: npt.NDArray[Any]
    row_splits: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values))
        object.__setattr__(self, "row_splits", np.asarray(self.row_splits, dtype=np.int64))
        splits, values = self.row_splits, self.values
        if values.ndim < 1 or splits.ndim != 1 or len(splits) < 1:
            raise InvalidArgumentError(
                f"values of shape {values.shape} and row_splits of shape {splits.shape} are not "
                "rows; give values of one dimension or more and row_splits of shape (rows + 1,)"
            )
        if splits[0] != 0 or splits[-1] != len(values) or bool(np.any(splits[1:] < splits[:-1])):
            raise InvalidArgumentError(
                f"row_splits must rise from 0 to {len(values)} (the number of values); "
                f"they go from {splits[0]} to {splits[-1]}"
            )

    @classmethod
    def from_rows(cls, rows: Sequence[Any], dtype: npt.DTypeLike | None = None) -> "RaggedArray":
        """Concatenate `rows` (arrays or lists).

        Args:
            rows: each of shape ``(length, ...)``, the same after the first dimension.
            dtype: dtype of the values; by default the one that the rows' dtypes promote to.

        Raises:
            InvalidArgumentError: if a row is not of this shape, or cannot be converted to `dtype`.
        """
        try:
            arrays = [np.asarray(row, dtype=dtype) for row in rows]
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"`rows` must be a list of arrays or lists: {error}; got {rows!r:.200}"
            ) from error
        for i, array in enumerate(arrays):
            if not array.ndim:
                raise InvalidArgumentError(
                    f"row {i} is {array!r:.200}, which has no length; give each row as a list or "
                    "an array of one dimension or more"
                )
        filled = [array for array in arrays if array.size] or arrays
        try:
            values = np.concatenate(filled) if filled else np.empty(0, dtype or np.float64)
        except ValueError as error:
            raise InvalidArgumentError(f"the rows do not fit together: {error}") from error
        splits = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=splits[1:])
        return cls(values, splits)

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, row: int) -> npt.NDArray[Any]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        return self.values[self.row_splits[row] : self.row_splits[row + 1]]

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    def to_list(self) -> list[Any]:
        """Return the rows as nested lists."""
        return [row.tolist() for row in self]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """Size of both arrays in bytes."""
        return self.values.nbytes + self.row_splits.nbytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RaggedArray):
            return NotImplemented
        return (
            self.dtype == other.dtype
            and np.array_equal(self.row_splits, other.row_splits)
            and np.array_equal(self.values, other.values)
        )

    __hash__ = None  # type: ignore[assignment]
