"""TensorFlow's specs, as stoker's."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from stoker.compat.tf.dtypes import as_dtype
from stoker.elements.spec import RaggedSpec, SparseSpec
from stoker.elements.spec import TensorSpec as StokerTensorSpec
from stoker.errors import UnimplementedError


class TensorShape(tuple[int | None, ...]):
    """The lengths of an array's dimensions, ``None`` where one varies; as tf.TensorShape."""

    __slots__ = ()

    def __new__(cls, dims: Iterable[int | None] = ()) -> "TensorShape":
        return super().__new__(cls, dims)

    def as_list(self) -> list[int | None]:
        """The lengths as a list."""
        return list(self)

    @property
    def rank(self) -> int:
        """How many dimensions."""
        return len(self)


class _Stands(type):
    """For ``isinstance(spec, tf.TensorSpec)`` with the specs that datasets give."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, StokerTensorSpec)


class TensorSpec(metaclass=_Stands):
    """Makes a `stoker.TensorSpec`; as tf.TensorSpec, whose `name` is dropped.

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
    """Makes a `stoker.RaggedSpec`; as tf.RaggedTensorSpec with one ragged dimension.

    Raises:
        UnimplementedError: more than one dimension is ragged.
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
    """Makes a `stoker.SparseSpec`; as tf.SparseTensorSpec."""

    def __new__(  # type: ignore[misc]
        cls, shape: Iterable[int | None] = (), dtype: npt.DTypeLike = np.float32
    ) -> SparseSpec:
        return SparseSpec(shape, as_dtype(dtype))
