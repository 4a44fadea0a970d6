"""Datasets of `torch.utils.data` as sources."""

from typing import Any

import torch.utils.data

from stoker.adapters.samples import by_index, by_iteration
from stoker.dataset.dataset import Dataset
from stoker.elements.foreign import array_of
from stoker.elements.spec import Spec
from stoker.elements.structure import children, is_leaf, rebuild
from stoker.errors import InvalidTypeError


def from_torch(
    dataset: Any, *, num_parallel_calls: int | None = None, element_spec: Spec | None = None
) -> Dataset:
    """Return a stoker Dataset of the samples of a PyTorch dataset.

    Tensors become arrays, without a copy. A map-style dataset (``__getitem__`` and ``__len__``) can
    be split among the workers of a service, shuffled by index and resumed; an iterable dataset is
    read in order by the process that runs the pipeline, like `Dataset.from_generator`. The dataset
    is pickled to be sent to workers: keep paths in the dataset, not data.

    Args:
        dataset: map-style or iterable; also any object with these methods.
        num_parallel_calls: calls of ``__getitem__`` that run at the same time on threads;
            `stoker.AUTOTUNE` finds a number. ``None``: 1.
        element_spec: spec of the samples, if needed before reading.

    Raises:
        InvalidTypeError: if `dataset` is neither, or is a stoker Dataset.

    Example:
        >>> import stoker.torch, torch
        >>> pairs = torch.utils.data.TensorDataset(torch.arange(3), torch.arange(3) * 10)
        >>> [(int(x), int(y)) for x, y in stoker.torch.from_torch(pairs)]
        [(0, 0), (1, 10), (2, 20)]
    """
    # PyTorch iterates an IterableDataset, also with `__len__` and `__getitem__`.
    is_iterable = isinstance(dataset, torch.utils.data.IterableDataset)
    if not is_iterable and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return by_index(dataset, _arrays, num_parallel_calls, element_spec)
    if not hasattr(dataset, "__iter__"):
        raise InvalidTypeError(
            "`dataset` must have __getitem__ and __len__, or __iter__, as datasets of "
            f"torch.utils.data; got a {type(dataset).__qualname__}"
        )
    return by_iteration(dataset, _arrays, element_spec)


def _arrays(sample: Any, path: str = "") -> Any:
    """Replace the tensors of a sample by arrays."""
    if isinstance(sample, torch.Tensor):
        return array_of(sample, path)
    if is_leaf(sample):
        return sample
    return rebuild(sample, [_arrays(member, path + step) for step, member in children(sample)])
