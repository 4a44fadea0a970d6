"""Samples of datasets of further libraries: by index, or by iteration."""

import functools
from collections.abc import Callable
from typing import Any

from stoker.dataset.dataset import Dataset
from stoker.elements.spec import Spec
from stoker.errors import InvalidTypeError


def by_index(
    samples: Any,
    convert: Callable[[Any], Any],
    num_parallel_calls: int | None,
    element_spec: Spec | None,
) -> Dataset:
    """Return a dataset of ``convert(samples[i])`` for all i, to be split, shuffled and resumed."""
    check_unconverted(samples)
    return Dataset.range(len(samples)).map(
        # A function of a module is pickled by its name; a closure would be pickled with its code.
        functools.partial(_sample, samples, convert),
        num_parallel_calls=num_parallel_calls,
        element_spec=element_spec,
    )


def _sample(samples: Any, convert: Callable[[Any], Any], index: int) -> Any:
    return convert(samples[index])


def by_iteration(samples: Any, convert: Callable[[Any], Any], element_spec: Spec | None) -> Dataset:
    """Return a dataset of the converted samples in order; each epoch iterates `samples` anew."""
    check_unconverted(samples)
    return Dataset.from_generator(
        functools.partial(map, convert, samples), output_signature=element_spec
    )


def check_unconverted(samples: Any) -> None:
    """Raise InvalidTypeError if `samples` is a stoker Dataset."""
    if isinstance(samples, Dataset):
        raise InvalidTypeError("`dataset` is a stoker.Dataset already; use it as it is")
