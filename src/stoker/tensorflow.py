"""TensorFlow: a stoker Dataset as a tf.data.Dataset.

Import this module as ``import stoker.tensorflow``; stoker does not install TensorFlow.
`stoker.compat.tf` has the names of tf.data without TensorFlow.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from stoker.adapters.reading import check_dataset
from stoker.dataset.dataset import Dataset
from stoker.dataset.iterator import Iterator
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec, UnknownSpec, spec_of
from stoker.elements.structure import children, flatten, is_leaf, map_structure, rebuild
from stoker.errors import InvalidArgumentError

__all__ = ["as_tf"]

_Elements = Iterator | Generator[Any]


def as_tf(dataset: Dataset, *, element_spec: Spec | None = None) -> Any:
    """Return a tf.data.Dataset of the elements of a stoker Dataset.

    Text is tf.string, a `RaggedArray` a tf.RaggedTensor, a `SparseArray` a tf.SparseTensor, a list
    a tuple. Each iteration is a new epoch. The elements are read in this process, like
    `from_generator`.

    Args:
        dataset: a stoker Dataset.
        element_spec: spec of the elements; ``None``: the spec of `dataset` or, where unknown, of
            the first element with dimensions of any length. An epoch is begun to read this element.

    Raises:
        InvalidTypeError: if `dataset` is not a stoker Dataset.
        InvalidArgumentError: if an element has no form in TensorFlow.
    """
    check_dataset(dataset, "stoker.tensorflow.as_tf")
    spec = dataset.element_spec if element_spec is None else element_spec
    if is_vague(spec):
        spec = _spec_of_first(dataset)
    return tf_dataset(dataset.iterator, spec, dataset.cardinality())


def tf_dataset(start: Callable[[], _Elements], spec: Spec, cardinality: int) -> Any:
    """Return a tf.data.Dataset.

    Args:
        start: returns the elements of an epoch, with a method `close`.
        spec: of the elements.
        cardinality: number of elements, or `stoker.UNKNOWN_CARDINALITY`.

    Raises:
        InvalidArgumentError: if an element has no form in TensorFlow.
    """

    def elements() -> Generator[Any]:
        with contextlib.closing(start()) as iterator:
            for element in iterator:
                yield _pack(map_structure(_value, element))

    signature = _pack(map_structure(_signature, spec))
    result = tf.data.Dataset.from_generator(elements, output_signature=signature)
    # from_generator forgets the length, which Keras shows as the end of its progress bar.
    if cardinality == UNKNOWN_CARDINALITY:
        return result
    return result.apply(tf.data.experimental.assert_cardinality(cardinality))


def is_vague(spec: Spec) -> bool:
    """Return whether a part of a spec is unknown."""
    return any(isinstance(leaf, UnknownSpec) for leaf in flatten(spec))


def spec_of_batches(batches: Sequence[Any]) -> Spec:
    """Return the spec of batches that are like the given ones.

    The first dimension has any length, and so have dimensions in which the given ones differ.

    Raises:
        InvalidArgumentError: if there is none, or a value has no form in TensorFlow.
    """
    if not batches:
        raise InvalidArgumentError("the dataset is empty, so that it has no batch with a spec")
    first, *others = (spec_of(batch) for batch in batches)
    return map_structure(_batch_spec, first, *others)


def _batch_spec(spec: Any, *others: Any) -> Any:
    # The last batch may be shorter, so that the first dimension has any length.
    any_length = _any_length(spec)
    if not isinstance(spec, TensorSpec):
        return any_length
    shape = [
        length if i > 0 and all(other.shape[i : i + 1] == (length,) for other in others) else None
        for i, length in enumerate(spec.shape)
    ]
    return TensorSpec(shape, spec.dtype)


def _pack(value: Any) -> Any:
    """Replace lists by tuples: TensorFlow would take a list for a tensor."""
    if is_leaf(value):
        return value
    members = [_pack(member) for _, member in children(value)]
    return tuple(members) if isinstance(value, list) else rebuild(value, members)


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
        # TensorFlow finds no dtype of an empty array of objects.
        return leaf.astype("S") if not leaf.size else leaf
    if leaf is None:
        raise InvalidArgumentError(
            "an element contains None, which TensorFlow has no tensor for; drop it in a map"
        )
    return leaf
