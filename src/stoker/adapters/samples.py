"""Samples of datasets of further libraries: by index, or by iteration."""

from collections.abc import Callable, Iterator
from typing import Any

from stoker.dataset.dataset import Dataset
from stoker.elements.spec import Spec
from stoker.errors import InvalidTypeError


class _Sample:
    """Function of an index that returns a converted sample."""

    def __init__(self, samples: Any, convert: Callable[[Any], Any]) -> None:
        self._samples = samples
        self._convert = convert

    def __call__(self, index: int) -> Any:
        return self._convert(self._samples[index])


class _Iteration:
    """Function that returns the converted samples in order."""

    def __init__(self, samples: Any, convert: Callable[[Any], Any]) -> None:
        self._samples = samples
        self._convert = convert

    def __call__(self) -> Iterator[Any]:
        return map(self._convert, self._samples)


def by_index(
    samples: Any,
    convert: Callable[[Any], Any],
    num_parallel_calls: int | None,
    element_spec: Spec | None,
) -> Dataset:
    """Return a dataset of ``convert(samples[i])`` for all i, to be split, shuffled and resumed."""
    check_unconverted(samples)
    return Dataset.range(len(samples)).map(
        _Sample(samples, convert), num_parallel_calls=num_parallel_calls, element_spec=element_spec
    )


def by_iteration(samples: Any, convert: Callable[[Any], Any], element_spec: Spec | None) -> Dataset:
    """Return a dataset of the converted samples in order; each epoch iterates `samples` anew."""
    check_unconverted(samples)
    return Dataset.from_generator(_Iteration(samples, convert), output_signature=element_spec)


def check_unconverted(samples: Any) -> None:
    """Raise InvalidTypeError if `samples` is a stoker Dataset."""
    if isinstance(samples, Dataset):
        raise InvalidTypeError("`dataset` is a stoker.Dataset already; use it as it is")
