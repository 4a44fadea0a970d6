"""Arrays that are mostly zero."""

import dataclasses
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True, eq=False)
class SparseArray:
    """Nonzero items of an array, and their indices; as tf.SparseTensor.

    Attributes:
        indices: one row per item, int64, shape ``(items, rank)``.
        values: shape ``(items,)``, any dtype.
        dense_shape: int64, shape ``(rank,)``.

    An index may be outside `dense_shape`, as in TensorFlow, until rows or a dense array are made.

    Raises:
        InvalidArgumentError: if the shapes of the three do not match.

    Example:
        >>> sparse = SparseArray.from_dense([[0, 7], [0, 0]])
        >>> sparse.indices.tolist(), sparse.values.tolist(), sparse.dense_shape.tolist()
        ([[0, 1]], [7], [2, 2])
        >>> sparse.to_dense().tolist()
        [[0, 7], [0, 0]]
    """

    __stoker_leaf__: ClassVar[bool] = True

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    dense_shape: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        shape = np.asarray(self.dense_shape, dtype=np.int64)
        indices = np.asarray(self.indices, dtype=np.int64)
        if indices.ndim != 2 and indices.size == 0:  # [] has no rank
            indices = indices.reshape(0, shape.size)
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "values", np.asarray(self.values))
        object.__setattr__(self, "dense_shape", shape)
        if shape.ndim != 1 or indices.ndim != 2 or self.values.shape != (len(indices),):
            raise InvalidArgumentError(
                f"indices {indices.shape}, values {self.values.shape} and dense_shape "
                f"{shape.shape} do not fit; give (items, rank), (items,) and (rank,)"
            )
        if indices.shape[1] != len(shape):
            raise InvalidArgumentError(
                f"indices have {indices.shape[1]} numbers a row, and the dense shape "
                f"{shape.tolist()} has {len(shape)}; give one for each dimension"
            )

    def check_indices(self) -> None:
        """Raise InvalidArgumentError if an index is outside `dense_shape`."""
        outside = np.any((self.indices < 0) | (self.indices >= self.dense_shape), axis=1)
        if outside.any():
            raise InvalidArgumentError(
                f"index {self.indices[outside][0].tolist()} lies outside the dense shape "
                f"{self.dense_shape.tolist()}"
            )

    @classmethod
    def from_dense(cls, dense: npt.ArrayLike) -> "SparseArray":
        """Make a SparseArray of the nonzero items of `dense`."""
        array = np.asarray(dense)
        indices = np.argwhere(array).astype(np.int64)
        values = array.reshape(-1)[np.flatnonzero(array)]
        return cls(indices, values, np.array(array.shape, np.int64))

    def to_dense(self) -> npt.NDArray[Any]:
        """Return the whole array, zero where there is no item.

        Raises:
            InvalidArgumentError: if an index is outside `dense_shape`.
        """
        self.check_indices()
        dense = np.zeros(tuple(self.dense_shape), self.values.dtype)
        if dense.ndim:
            dense[tuple(self.indices.T)] = self.values
        elif len(self.values):
            dense[()] = self.values[0]
        return dense

    def __len__(self) -> int:
        if not len(self.dense_shape):
            raise TypeError("a SparseArray of rank 0 has no length")
        return int(self.dense_shape[0])

    def __getitem__(self, row: int) -> "SparseArray":
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        self.check_indices()
        chosen = self.indices[:, 0] == row % len(self)
        return SparseArray(self.indices[chosen, 1:], self.values[chosen], self.dense_shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """Size of the three arrays in bytes."""
        return self.indices.nbytes + self.values.nbytes + self.dense_shape.nbytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseArray):
            return NotImplemented
        return (
            self.dtype == other.dtype
            and np.array_equal(self.dense_shape, other.dense_shape)
            and np.array_equal(self.indices, other.indices)
            and np.array_equal(self.values, other.values)
        )

    __hash__ = None  # type: ignore[assignment]
