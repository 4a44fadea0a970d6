"""TensorFlow: a stoker Dataset as a tf.data.Dataset.

Import it as ``import stoker.tensorflow``; it needs TensorFlow, which stoker does not install.
`stoker.compat.tf` has the names of tf.data without TensorFlow.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from stoker.adapters.reading import check_dataset
from stoker.dataset.dataset import Dataset
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec, UnknownSpec, spec_of
from stoker.elements.structure import flatten, map_structure
from stoker.errors import InvalidArgumentError

__all__ = ["as_tf"]


def as_tf(dataset: Dataset, *, element_spec: Spec | None = None) -> Any:
    """Return a tf.data.Dataset of the elements of a stoker Dataset.

    Text is tf.string, a `RaggedArray` a tf.RaggedTensor, a `SparseArray` a tf.SparseTensor. Each
    iteration is a new epoch. The elements are read in this process, as of `from_generator`.

    Args:
        dataset: a stoker Dataset.
        element_spec: spec of the elements; ``None``: that of `dataset` or, where it does not say,
            that of the first element with dimensions of any length. An epoch is begun to read it.

    Raises:
        InvalidTypeError: if `dataset` is not a stoker Dataset.
        InvalidArgumentError: if an element has no form in TensorFlow.
    """
    check_dataset(dataset, "stoker.tensorflow.as_tf")
    spec = dataset.element_spec if element_spec is None else element_spec
    if any(_is_vague(leaf) for leaf in flatten(spec)):
        spec = _spec_of_first(dataset)
    signature = map_structure(_signature, spec)

    def elements() -> Iterator[Any]:
        with dataset.iterator() as iterator:
            for element in iterator:
                yield map_structure(_value, element)

    result = tf.data.Dataset.from_generator(elements, output_signature=signature)
    count = dataset.cardinality()
    if count == UNKNOWN_CARDINALITY:
        return result
    return result.apply(tf.data.experimental.assert_cardinality(count))


def _is_vague(spec: Any) -> bool:
    # The dtype object is that of str, bytes and None.
    return isinstance(spec, UnknownSpec)


def _spec_of_first(dataset: Dataset) -> Spec:
    with dataset.iterator() as iterator:
        for element in iterator:
            return map_structure(_any_length, spec_of(element))
    raise InvalidArgumentError(
        "the dataset is empty, so that its first element cannot tell its spec; give `element_spec`"
    )


def _any_length(spec: Any) -> Any:
    if isinstance(spec, TensorSpec | SparseSpec):
        return type(spec)([None] * len(spec.shape), spec.dtype)
    if isinstance(spec, RaggedSpec):
        shape = (None, *[None] * spec.ragged_rank, *spec.shape[1 + spec.ragged_rank :])
        return RaggedSpec(shape, spec.dtype, spec.ragged_rank)
    raise InvalidArgumentError(
        "an element contains a value that TensorFlow has no tensor for; return arrays, numbers or "
        "text from a map"
    )


def _signature(spec: Any) -> Any:
    dtype = tf.string if spec.dtype.kind in "OSU" else tf.as_dtype(spec.dtype)
    if isinstance(spec, RaggedSpec):
        return tf.RaggedTensorSpec(
            spec.shape, dtype, ragged_rank=spec.ragged_rank, row_splits_dtype=tf.int64
        )
    if isinstance(spec, SparseSpec):
        return tf.SparseTensorSpec(spec.shape, dtype)
    return tf.TensorSpec(spec.shape, dtype)


def _value(leaf: Any) -> Any:
    if isinstance(leaf, RaggedArray):
        return tf.RaggedTensor.from_row_splits(_value(leaf.values), leaf.row_splits, validate=False)
    if isinstance(leaf, SparseArray):
        return tf.SparseTensor(leaf.indices, leaf.values, leaf.dense_shape)
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "O":
        return leaf.astype("S") if not leaf.size else leaf
    if leaf is None:
        raise InvalidArgumentError(
            "an element contains None, which TensorFlow has no tensor for; drop it in a map"
        )
    return leaf
