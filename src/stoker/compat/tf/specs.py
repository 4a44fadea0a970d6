"""TensorFlow's constructors of specs, which return stoker's specs."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.compat.tf.dtypes import as_dtype
from stoker.elements.spec import RaggedSpec, SparseSpec
from stoker.elements.spec import TensorSpec as StokerTensorSpec


class TensorShape(tuple[int | None, ...]):
    """The sizes of the dimensions of an array, ``None`` if unknown; as `tf.TensorShape`."""

    __slots__ = ()

    def __new__(cls, dims: Iterable[int | None] | int = ()) -> "TensorShape":
        lengths = (dims,) if isinstance(dims, int) else dims
        return super().__new__(cls, StokerTensorSpec(lengths).shape)

    def as_list(self) -> list[int | None]:
        """Return the sizes as a list."""
        return list(self)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self)


class _Stands(type):
    """Metaclass for ``isinstance(spec, tf.TensorSpec)`` with the specs of datasets."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, StokerTensorSpec)


class TensorSpec(metaclass=_Stands):
    """Construct a `stoker.TensorSpec`; as `tf.TensorSpec`, but `name` is ignored.

    Example:
        >>> from stoker.compat import tf
        >>> tf.TensorSpec([None, 3], tf.float32, name="image")
        TensorSpec(shape=(None, 3), dtype=float32)
    """

    def __new__(  # type: ignore[misc]
        cls,
        shape: Iterable[int | None] | int = (),
        dtype: npt.DTypeLike = np.float32,
        name: str | None = None,  # noqa: ARG004 - nothing is named here
    ) -> StokerTensorSpec:
        return StokerTensorSpec(TensorShape(shape), as_dtype(dtype))


class RaggedTensorSpec:
    """Construct a `stoker.RaggedSpec`; as `tf.RaggedTensorSpec`.

    With a `ragged_rank` of 0 the spec is a TensorSpec; by default, all dimensions after the first
    are ragged, as in TensorFlow.
    """

    def __new__(
        cls,
        shape: Iterable[int | None] | None = None,
        dtype: npt.DTypeLike = np.float32,
        ragged_rank: int | None = None,
        row_splits_dtype: npt.DTypeLike = np.int64,  # noqa: ARG004 - int64 is what there is
    ) -> Any:
        lengths = (None, None) if shape is None else tuple(shape)
        rank = len(lengths) - 1 if ragged_rank is None else ragged_rank
        if rank == 0:
            return StokerTensorSpec(lengths, as_dtype(dtype))
        known = (lengths[0], *[None] * rank, *lengths[1 + rank :])
        return RaggedSpec(known, as_dtype(dtype), rank)


class SparseTensorSpec:
    """Construct a `stoker.SparseSpec`; as `tf.SparseTensorSpec`."""

    def __new__(  # type: ignore[misc]
        cls, shape: Iterable[int | None] = (), dtype: npt.DTypeLike = np.float32
    ) -> SparseSpec:
        return SparseSpec(shape, as_dtype(dtype))
