"""Grain datasets and data sources as sources.

Import this module as ``import stoker.grain``; stoker does not install the package `grain`.
"""

from typing import Any

import grain

from stoker.adapters.samples import by_index, by_iteration, check_unconverted
from stoker.dataset.dataset import Dataset
from stoker.elements.spec import Spec
from stoker.errors import InvalidTypeError

__all__ = ["from_grain"]


def from_grain(
    dataset: Any, *, num_parallel_calls: int | None = None, element_spec: Spec | None = None
) -> Dataset:
    """Return a stoker Dataset of the elements.

    A `grain.MapDataset` or a random access data source can be split among the workers of a
    service, shuffled by index and resumed; a `grain.IterDataset` is read in order by the process
    that runs the pipeline, like `Dataset.from_generator`.

    Args:
        dataset: a `grain.MapDataset`, a `grain.IterDataset`, or a data source with ``__getitem__``
            and ``__len__``.
        num_parallel_calls: elements of a `grain.MapDataset` or a data source that are computed at
            the same time on threads; `stoker.AUTOTUNE` finds a number. ``None``: 1.
        element_spec: spec of the elements, if needed before reading.

    Raises:
        InvalidTypeError: if `dataset` is none of these.

    Example:
        >>> import grain, stoker.grain
        >>> squares = grain.MapDataset.range(4).map(lambda x: x * x)
        >>> list(stoker.grain.from_grain(squares))
        [0, 1, 4, 9]
    """
    check_unconverted(dataset)
    if isinstance(dataset, grain.IterDataset):
        return by_iteration(dataset, _same, element_spec)
    if isinstance(dataset, grain.MapDataset) and len(dataset) == _ENDLESS:
        # An index of a repeated dataset is an index of the first pass, and of a later pass.
        endless = Dataset.counter().map(
            dataset.__getitem__, num_parallel_calls=num_parallel_calls, element_spec=element_spec
        )
        return endless.filter(_is_present) if _is_filtered(dataset) else endless
    if isinstance(dataset, grain.MapDataset) and _is_filtered(dataset):
        return by_index(dataset, _same, num_parallel_calls, element_spec).filter(_is_present)
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return by_index(dataset, _same, num_parallel_calls, element_spec)
    raise InvalidTypeError(
        "`dataset` must be a grain.MapDataset, a grain.IterDataset, or have __getitem__ and "
        f"__len__; got a {type(dataset).__qualname__}"
    )


_ENDLESS = 2**63 - 1
"""Length of a dataset that repeats without end."""


def _is_filtered(dataset: Any) -> bool:
    """Return whether a `grain.MapDataset` has None in place of removed elements."""
    return type(dataset).__name__ == "FilterMapDataset" or any(map(_is_filtered, dataset.parents))


def _is_present(element: Any) -> bool:
    return element is not None


def _same(element: Any) -> Any:
    return element
