"""Arrays with rows of different lengths."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True, eq=False)
class RaggedArray:
    """Rows of different lengths, concatenated; as tf.RaggedTensor.

    Attributes:
        values: all rows' items, shape ``(items, ...)``, any dtype; a RaggedArray if the rows' items
            differ in length, too.
        row_splits: the rows' boundaries, int64, shape ``(rows + 1,)``: row i is
            ``values[row_splits[i]:row_splits[i + 1]]``.

    Raises:
        InvalidArgumentError: if `values` has no dimension, or `row_splits` does not rise from 0 to
            the number of items.

    Example:
        >>> ragged = RaggedArray.from_rows([[1, 2], [], [3]])
        >>> len(ragged), ragged.to_list()
        (3, [[1, 2], [], [3]])
        >>> deep = RaggedArray.from_rows([[[1], [2, 3]], [], [[4]]])
        >>> deep.ragged_rank, deep[0].to_list()
        (2, [[1], [2, 3]])
    """

    __stoker_leaf__: ClassVar[bool] = True

    values: Any
    row_splits: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if not isinstance(self.values, RaggedArray):
            object.__setattr__(self, "values", np.asarray(self.values))
        object.__setattr__(self, "row_splits", np.asarray(self.row_splits, dtype=np.int64))
        splits, values = self.row_splits, self.values
        has_items = isinstance(values, RaggedArray) or values.ndim > 0
        if not has_items or splits.ndim != 1 or len(splits) < 1:
            raise InvalidArgumentError(
                f"values {values!r:.80} and row_splits of shape {splits.shape} are not "
                "rows; give values of one dimension or more and row_splits of shape (rows + 1,)"
            )
        if splits[0] != 0 or splits[-1] != len(values) or bool(np.any(splits[1:] < splits[:-1])):
            raise InvalidArgumentError(
                f"row_splits must rise from 0 to {len(values)} (the number of values); "
                f"they go from {splits[0]} to {splits[-1]}"
            )

    @classmethod
    def from_rows(cls, rows: Sequence[Any], dtype: npt.DTypeLike | None = None) -> "RaggedArray":
        """Concatenate `rows` (arrays, lists or RaggedArrays).

        Args:
            rows: each of shape ``(length, ...)``. If they differ after the first dimension, or are
                nested lists of different lengths, more dimensions are ragged.
            dtype: dtype of the values; by default the one that the rows' dtypes promote to.

        Raises:
            InvalidArgumentError: if a row is not of this shape, or cannot be converted to `dtype`.
        """
        try:
            if any(isinstance(row, RaggedArray) for row in rows):
                return cls._from_nested(rows, dtype)
            arrays = [np.asarray(row, dtype=dtype) for row in rows]
        except (TypeError, ValueError) as error:
            if not isinstance(error, InvalidArgumentError) and _are_nested(rows):
                return cls._from_nested(rows, dtype)
            raise InvalidArgumentError(
                f"`rows` must be a list of arrays or lists: {error}; got {rows!r:.200}"
            ) from error
        for i, array in enumerate(arrays):
            if not array.ndim:
                raise InvalidArgumentError(
                    f"row {i} is {array!r:.200}, which has no length; give each row as a list or "
                    "an array of one dimension or more"
                )
        # An empty list becomes an array of float64 without further dimensions: it must decide
        # neither the dtype nor the shape of the rows.
        filled = [array for array in arrays if len(array)] or arrays
        if len({array.shape[1:] for array in filled}) > len({array.ndim for array in filled}):
            return cls._from_nested(rows, dtype)
        try:
            values = np.concatenate(filled) if filled else np.empty(0, dtype or np.float64)
        except ValueError as error:
            raise InvalidArgumentError(f"the rows do not fit together: {error}") from error
        return cls(values, _splits_of([len(array) for array in arrays]))

    @classmethod
    def _from_nested(cls, rows: Sequence[Any], dtype: npt.DTypeLike | None) -> "RaggedArray":
        """Return rows of which at least one has items of different lengths."""
        for i, row in enumerate(rows):
            if not hasattr(row, "__len__") or isinstance(row, str | bytes):
                raise InvalidArgumentError(
                    f"row {i} is {row!r:.200}, which has no length; give each row as a list or "
                    "an array of one dimension or more"
                )
        values = cls.from_rows([item for row in rows for item in row], dtype)
        return cls(values, _splits_of([len(row) for row in rows]))

    @classmethod
    def from_dense(cls, array: npt.NDArray[Any], ragged_rank: int = 1) -> "RaggedArray":
        """Return an array with its dimensions after the first as ragged ones, not copied.

        Args:
            array: has more than `ragged_rank` dimensions.
            ragged_rank: number of the ragged dimensions.

        Example:
            >>> RaggedArray.from_dense(np.zeros((2, 3, 1, 5)), 2).values.row_splits.tolist()
            [0, 1, 2, 3, 4, 5, 6]
        """
        rows, length = array.shape[:2]
        values: Any = array.reshape(rows * length, *array.shape[2:])
        if ragged_rank > 1:
            values = cls.from_dense(values, ragged_rank - 1)
        return cls(values, _splits_of([length] * rows))

    def rows(self, start: int, stop: int) -> "RaggedArray":
        """Return the rows from `start` to `stop`, with views of their values."""
        splits = self.row_splits[start : stop + 1]
        return RaggedArray(_items(self.values, splits[0], splits[-1]), splits - splits[0])

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, row: int) -> Any:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        return _items(self.values, self.row_splits[row], self.row_splits[row + 1])

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def to_list(self) -> list[Any]:
        """Return the rows as nested lists."""
        return [row.to_list() if isinstance(row, RaggedArray) else row.tolist() for row in self]

    @property
    def ragged_rank(self) -> int:
        """Number of dimensions, after the first, in which lengths differ."""
        values = self.values
        return 1 + (values.ragged_rank if isinstance(values, RaggedArray) else 0)

    @property
    def flat_values(self) -> npt.NDArray[Any]:
        """The values of the innermost rows, in one array."""
        values = self.values
        return values.flat_values if isinstance(values, RaggedArray) else values

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.flat_values.dtype

    @property
    def nbytes(self) -> int:
        """Size of both arrays in bytes."""
        nbytes: int = self.values.nbytes + self.row_splits.nbytes
        return nbytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RaggedArray):
            return NotImplemented
        return (
            self.dtype == other.dtype
            and np.array_equal(self.row_splits, other.row_splits)
            and self.ragged_rank == other.ragged_rank
            and np.array_equal(self.flat_values, other.flat_values)
            and (not isinstance(self.values, RaggedArray) or self.values == other.values)
        )

    __hash__ = None  # type: ignore[assignment]


def concatenated(
    arrays: Sequence[RaggedArray], join: Callable[[list[npt.NDArray[Any]]], npt.NDArray[Any]]
) -> RaggedArray:
    """Return the rows of all `arrays`, which have one ragged rank.

    Args:
        arrays: at least one.
        join: concatenates the arrays of the innermost values.
    """
    values: list[Any] = [array.values for array in arrays]
    nested = isinstance(values[0], RaggedArray)
    joined: Any = concatenated(values, join) if nested else join(values)
    lengths = np.concatenate([np.diff(array.row_splits) for array in arrays])
    return RaggedArray(joined, _splits_of(lengths))


def stacked(
    arrays: Sequence[RaggedArray], join: Callable[[list[npt.NDArray[Any]]], npt.NDArray[Any]]
) -> RaggedArray:
    """Return a RaggedArray whose rows are `arrays`; otherwise as `concatenated`."""
    return RaggedArray(concatenated(arrays, join), _splits_of(list(map(len, arrays))))


def _items(values: Any, start: int, stop: int) -> Any:
    return values.rows(start, stop) if isinstance(values, RaggedArray) else values[start:stop]


def _splits_of(lengths: Any) -> npt.NDArray[np.int64]:
    splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return splits


def _are_nested(rows: Sequence[Any]) -> bool:
    """Return whether rows have items with a length."""
    try:
        return any(isinstance(item, list | tuple | np.ndarray) for row in rows for item in row)
    except TypeError:
        return False
