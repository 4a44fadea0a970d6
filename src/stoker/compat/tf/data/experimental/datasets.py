"""tf.data.experimental: functions that construct or read datasets; most are methods now."""

import functools
from collections.abc import Sequence
from typing import Any

from stoker.compat.tf.data.dataset import Dataset
from stoker.compat.tf.data.values import as_constants
from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.elements.common_spec import common_spec
from stoker.elements.spec import Spec, spec_of
from stoker.elements.structure import same_structure
from stoker.errors import InvalidArgumentError


def cardinality(dataset: StokerDataset) -> int:
    """Return the number of elements; as `tf.data.experimental.cardinality`."""
    return Dataset.of(dataset).cardinality()


def get_structure(dataset: StokerDataset) -> Spec:
    """Return the spec of the elements; as `Dataset.element_spec`."""
    return Dataset.of(dataset).element_spec


def get_single_element(dataset: StokerDataset) -> Any:
    """Return the only element; as `Dataset.get_single_element`."""
    return Dataset.of(dataset).get_single_element()


def save(dataset: StokerDataset, path: str, *args: Any, **kwargs: Any) -> None:
    """Write the elements to files; as `Dataset.save`."""
    Dataset.of(dataset).save(path, *args, **kwargs)


def sample_from_datasets(
    datasets: Sequence[StokerDataset],
    weights: Any = None,
    seed: int | None = None,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """Sample from several datasets by weight; as `Dataset.sample_from_datasets`."""
    return Dataset.of(
        Dataset.sample_from_datasets(
            [Dataset.of(one) for one in datasets],
            weights,
            seed=seed,
            stop_on_empty_dataset=stop_on_empty_dataset,
        )
    )


def choose_from_datasets(
    datasets: Sequence[StokerDataset],
    choice_dataset: StokerDataset,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """Choose from several datasets by indices; as `Dataset.choose_from_datasets`.

    Unlike the method, this function continues by default when a dataset ends.
    """
    return Dataset.of(
        Dataset.choose_from_datasets(
            [Dataset.of(one) for one in datasets],
            choice_dataset,
            stop_on_empty_dataset=stop_on_empty_dataset,
        )
    )


# In TensorFlow functions and classes, here methods with the same arguments.
Counter = Dataset.counter
RandomDataset = Dataset.random
load = Dataset.load


def from_list(
    elements: Sequence[Any],
    name: str | None = None,  # noqa: ARG001 - nothing is named here
) -> Dataset:
    """Yield the items of a list; as `tf.data.experimental.from_list`.

    Args:
        elements: at least one, of equal structure. Their shapes may differ; lists become arrays.
        name: ignored.

    Raises:
        InvalidArgumentError: if the list is empty or its items differ in structure.

    Example:
        >>> list(from_list([(1, [1]), (2, [2, 3])]).as_numpy_iterator())
        [(1, array([1], dtype=int32)), (2, array([2, 3], dtype=int32))]
    """
    if not isinstance(elements, list) or not elements:
        raise InvalidArgumentError(f"`elements` must be a non-empty list; got {elements!r}")
    constants = [as_constants(element) for element in elements]
    for number, constant in enumerate(constants):
        if not same_structure(constant, constants[0]):
            raise InvalidArgumentError(
                f"`elements` must all have one structure; element {number} is {constant!r}, "
                f"element 0 is {constants[0]!r}"
            )
    try:
        spec = functools.reduce(common_spec, map(spec_of, constants))
    except InvalidArgumentError:  # of different dtypes
        spec = None
    # Indices make the dataset splittable and skipping cheap.
    return Dataset.range(len(constants)).map(constants.__getitem__, element_spec=spec)
