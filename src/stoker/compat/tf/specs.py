"""TensorFlow's constructors of specs, which return stoker's specs."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from stoker.compat.tf.dtypes import as_dtype
from stoker.elements.spec import RaggedSpec, SparseSpec
from stoker.elements.spec import TensorSpec as StokerTensorSpec
from stoker.errors import UnimplementedError


class TensorShape(tuple[int | None, ...]):
    """The sizes of the dimensions of an array, ``None`` if unknown; as `tf.TensorShape`."""

    __slots__ = ()

    def __new__(cls, dims: Iterable[int | None] = ()) -> "TensorShape":
        return super().__new__(cls, dims)

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
        shape: Iterable[int | None] = (),
        dtype: npt.DTypeLike = np.float32,
        name: str | None = None,  # noqa: ARG004 - nothing is named here
    ) -> StokerTensorSpec:
        return StokerTensorSpec(shape, as_dtype(dtype))


class RaggedTensorSpec:
    """Construct a `stoker.RaggedSpec`; as `tf.RaggedTensorSpec` with one ragged dimension.

    Raises:
        UnimplementedError: if more than one dimension is ragged.
    """

    def __new__(  # type: ignore[misc]
        cls,
        shape: Iterable[int | None] | None = None,
        dtype: npt.DTypeLike = np.float32,
        ragged_rank: int | None = None,
        row_splits_dtype: npt.DTypeLike = np.int64,  # noqa: ARG004 - int64 is what there is
    ) -> RaggedSpec:
        if ragged_rank not in (None, 1):
            raise UnimplementedError(
                f"`ragged_rank` is {ragged_rank}; stoker's RaggedArray has one ragged dimension"
            )
        return RaggedSpec((None, None) if shape is None else shape, as_dtype(dtype))


class SparseTensorSpec:
    """Construct a `stoker.SparseSpec`; as `tf.SparseTensorSpec`."""

    def __new__(  # type: ignore[misc]
        cls, shape: Iterable[int | None] = (), dtype: npt.DTypeLike = np.float32
    ) -> SparseSpec:
        return SparseSpec(shape, as_dtype(dtype))
