"""Arrays of a batch that threads fill, each element in its own slot."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.dataset.collation.leaves import is_array_like
from stoker.dataset.tree.table import Allocate
from stoker.elements.foreign import array_of
from stoker.elements.structure import Container, children, container_of, rebuild

Array = npt.NDArray[Any]

# Smaller arrays are stacked later, which is cheaper than a slot for each.
_MIN_BYTES = 512


class Slots:
    """Arrays of a batch while threads fill the arrays, each element in its own slot.

    The first element written fixes every leaf's shape and dtype. A leaf that differs is not
    written, so that `collate` finds it.

    Args:
        size: slots of the batch.
        allocate: makes the arrays.
    """

    def __init__(self, size: int, allocate: Allocate) -> None:
        self._size = size
        self._allocate = allocate
        self._arrays: dict[str, Array] = {}
        self._lock = threading.Lock()

    def write(self, slot: int, value: Any, name: str = "") -> Any:
        """Write the large arrays of `value` into slot `slot`; return the rest of `value`."""
        if container_of(type(value)) is not Container.LEAF:
            members = [self.write(slot, member, name + step) for step, member in children(value)]
            return rebuild(value, members)
        if not isinstance(value, np.ndarray):
            if not is_array_like(value):
                return value
            value = array_of(value, name)
        if value.nbytes < _MIN_BYTES or value.dtype.hasobject:
            return value
        array = self._arrays.get(name)
        if array is None:
            array = self._make(name, value)
        if array.dtype != value.dtype or array.shape[1:] != value.shape:
            return value
        # Without the lock: each thread writes to the slots of its own elements.
        array[slot] = value
        return WRITTEN

    def read(self, name: str) -> Array:
        """Return the array of this leaf, a row for each slot."""
        return self._arrays[name]

    def _make(self, name: str, value: Array) -> Array:
        with self._lock:
            # Another thread may have made the array since `write` looked.
            array = self._arrays.get(name)
            if array is None:
                array = self._allocate((self._size, *value.shape), value.dtype)
                self._arrays[name] = array
            return array


class Written:
    """Placeholder for an array that `Slots` has written."""


WRITTEN = Written()
