"""Hugging Face datasets as sources.

Import this module as ``import stoker.hugging_face``; stoker does not install the package
`datasets`.
"""

import functools
from typing import Any

import datasets

from stoker.adapters.samples import by_index, by_iteration
from stoker.dataset.dataset import Dataset
from stoker.elements.spec import Spec
from stoker.errors import InvalidTypeError

__all__ = ["from_hugging_face"]


def from_hugging_face(
    dataset: Any, *, num_parallel_calls: int | None = None, element_spec: Spec | None = None
) -> Dataset:
    """Return a stoker Dataset of the examples, dicts of arrays, numbers and text.

    A `datasets.Dataset` can be split among the workers of a service by its examples, shuffled and
    resumed; a `datasets.IterableDataset` is split by its shards. Its files must be at the same
    paths on all workers.

    Args:
        dataset: a `datasets.Dataset` or `datasets.IterableDataset`, read in the format "numpy"
            whatever format is set.
        num_parallel_calls: examples of a `datasets.Dataset` that are read at the same time on
            threads; `stoker.AUTOTUNE` finds a number. ``None``: 1.
        element_spec: spec of the examples, if needed before reading.

    Raises:
        InvalidTypeError: if `dataset` is neither.

    Example:
        >>> import datasets, stoker.hugging_face
        >>> table = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
        >>> [(x["text"], int(x["label"])) for x in stoker.hugging_face.from_hugging_face(table)]
        [('a', 0), ('b', 1)]
    """
    if isinstance(dataset, datasets.Dataset):
        return by_index(dataset.with_format("numpy"), _plain, num_parallel_calls, element_spec)
    if isinstance(dataset, datasets.IterableDataset):
        shards = dataset.num_shards
        return Dataset.range(shards).flat_map(
            functools.partial(_shard, dataset.with_format("numpy"), shards, element_spec)
        )
    if isinstance(dataset, dict):  # DatasetDict, IterableDatasetDict
        raise InvalidTypeError(
            f"`dataset` has the splits {', '.join(map(repr, dataset))}; give one of them, such as "
            f"dataset[{next(iter(dataset), 'train')!r}]"
        )
    raise InvalidTypeError(
        "`dataset` must be a datasets.Dataset or datasets.IterableDataset; got a "
        f"{type(dataset).__qualname__}"
    )


def _shard(dataset: Any, shards: int, element_spec: Spec | None, index: int) -> Dataset:
    part = dataset if shards == 1 else dataset.shard(num_shards=shards, index=index)
    return by_iteration(part, _plain, element_spec)


def _plain(example: Any) -> Any:
    return {
        # `numpy.str_`, of the format numpy, is a subclass of str; elements have str.
        name: str(value) if isinstance(value, str) else value
        for name, value in example.items()
    }
