"""tf.data's NumpyIterator."""

from typing import Any

from stoker.compat.tf.data.values import as_numpy
from stoker.dataset.closing import Closing
from stoker.dataset.iterator import Iterator


class NumpyIterator(Closing):
    """An epoch of a dataset as NumPy values; constructed by `Dataset.as_numpy_iterator`.

    All further attributes are attributes of `stoker.Iterator`.

    Example:
        >>> from stoker.compat import tf
        >>> iterator = tf.data.Dataset.range(3).as_numpy_iterator()
        >>> next(iterator).item(), iterator.stats()["elements"]
        (0, 1)
    """

    def __init__(self, iterator: Iterator) -> None:
        self._iterator = iterator

    def __iter__(self) -> "NumpyIterator":
        return self

    def __next__(self) -> Any:
        return as_numpy(next(self._iterator))

    def next(self) -> Any:
        """Return the next element; as ``next(iterator)``."""
        return next(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def close(self) -> None:
        """Close the iterator."""
        self._iterator.close()
