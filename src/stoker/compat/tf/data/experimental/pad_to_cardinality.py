"""tf.data.experimental.pad_to_cardinality: more elements, marked as padding."""

from collections.abc import Callable
from typing import Any

import numpy as np

from stoker.compat.tf.data.dataset import Dataset
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import RaggedSpec, SparseSpec, TensorSpec, UnknownSpec, spec_of
from stoker.elements.structure import flatten, map_structure
from stoker.errors import InvalidArgumentError


def pad_to_cardinality(
    cardinality: int, mask_key: str = "valid"
) -> Callable[[StokerDataset], Dataset]:
    """Return a transformation that appends zeros up to a number of elements.

    The elements must be dicts, and get an entry that is True for elements of the dataset and False
    for padding, whose shapes are those of the element_spec or else of the first element. As
    `tf.data.experimental.pad_to_cardinality`.

    Args:
        cardinality: number of elements with the padding.
        mask_key: the key of the entry.

    Raises:
        InvalidArgumentError: when applied, if the cardinality of the dataset is unknown, infinite
            or larger, its elements are not dicts, or nothing tells the shapes of the padding.

    Example:
        >>> from stoker.compat import tf
        >>> dataset = tf.data.Dataset.from_tensor_slices({"a": [1, 2]})
        >>> padded = dataset.apply(tf.data.experimental.pad_to_cardinality(3))
        >>> [(int(x["a"]), x["valid"]) for x in padded]
        [(1, True), (2, True), (0, False)]
    """
    target = arguments.integer("cardinality", cardinality)

    def transformation(dataset: StokerDataset) -> Dataset:
        given = Dataset.of(dataset)
        length, spec = given.cardinality(), given.element_spec
        # The words are TensorFlow's.
        if length < 0:
            raise InvalidArgumentError(
                "The dataset passed into `pad_to_cardinality` must have a known cardinalty, but "
                f"has cardinality {length}"
            )
        if length > target:
            raise InvalidArgumentError(
                "The dataset passed into `pad_to_cardinality` must have a cardinalty less than "
                f"the target cardinality ({target}), but has cardinality {length}"
            )
        if not isinstance(spec, dict | UnknownSpec):
            raise _not_a_dict(spec)
        if length == target:
            return _marked(given, mask_key, mask=True)
        padding = _marked(_padding(given), mask_key, mask=False).repeat(target - length)
        return _marked(given, mask_key, mask=True).concatenate(padding)

    return transformation


def _padding(dataset: Dataset) -> Dataset:
    """Return a dataset of a single element of zeros, in the form of the elements of `dataset`."""
    leaves = flatten(dataset.element_spec)
    if all(isinstance(leaf, TensorSpec) and None not in leaf.shape for leaf in leaves):
        return Dataset.from_tensors(map_structure(_zeros_of_spec, dataset.element_spec))
    if not len(dataset):
        raise InvalidArgumentError(
            "`pad_to_cardinality` cannot know the shapes of the padding: the dataset is empty and "
            f"its element_spec is {dataset.element_spec!r}; declare it with map(element_spec=)"
        )
    # Cached, so that the first element is computed once for all the padding.
    return dataset.take(1).map(_zeros_like, element_spec=dataset.element_spec).cache()


def _zeros_like(element: Any) -> Any:
    return map_structure(_zeros_of_spec, map_structure(spec_of, element))


def _zeros_of_spec(spec: Any) -> Any:
    if isinstance(spec, UnknownSpec):
        raise InvalidArgumentError(
            "`pad_to_cardinality` pads with zeros, but the elements contain values that are not "
            "arrays, numbers or text, such as datasets"
        )
    if isinstance(spec, RaggedSpec):
        items = [n or 0 for n in spec.shape[1 + spec.ragged_rank :]]
        values: Any = np.zeros((0, *items), spec.dtype)
        for _ in range(spec.ragged_rank - 1):
            values = RaggedArray(values, np.zeros(1, np.int64))
        return RaggedArray(values, np.zeros((spec.shape[0] or 0) + 1, np.int64))
    if isinstance(spec, SparseSpec):
        shape = np.array([n or 0 for n in spec.shape], np.int64)
        return SparseArray(np.zeros((0, len(shape)), np.int64), np.zeros(0, spec.dtype), shape)
    if spec.dtype == object:
        text = np.full(spec.shape, b"", object)
        return text if spec.shape else b""
    return np.zeros(spec.shape, spec.dtype)[()]


def _marked(dataset: Dataset, mask_key: str, *, mask: bool) -> Dataset:
    spec = dataset.element_spec
    if isinstance(spec, dict):
        spec = {**spec, mask_key: TensorSpec((), np.bool_)}
    return dataset.map(_Marking(mask_key, mask), element_spec=spec)


class _Marking:
    """Add the entry of the mask to an element."""

    def __init__(self, mask_key: str, mask: bool) -> None:
        self._entry = {mask_key: mask}

    def __call__(self, *members: Any) -> Any:
        element = members[0] if len(members) == 1 else members
        if not isinstance(element, dict):
            raise _not_a_dict(element)
        return {**element, **self._entry}


def _not_a_dict(found: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        "`pad_to_cardinality` requires its input dataset to be a dictionary. Got "
        f"{found!r:.200}; return one from a map before"
    )
