"""Draws of a shuffle: slots of its buffer, and the order of the rest after the input's end."""

import copy
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stoker.dataset.tree.node import INFINITE_CARDINALITY

# Number of draws per call, which determines the order for a seed: do not change.
_BLOCK = 1024

# The origin of the element in a slot while draws are replayed.
_BUFFERED, _SKIPPED = -1, -2

_Numbers = npt.NDArray[np.int64]


class Replay(NamedTuple):
    """The state of a shuffle's buffer after some positions, found without reading its input.

    Attributes:
        origins: for each slot, the input position of its element, counted from the next position;
            negative for a slot that is unchanged or not needed.
        inputs: number of input positions that were read.
        swapped: number of positions before the end of the input; later positions are of the rest.
        order: the order of the slots after the end of the input; None before the end.
    """

    origins: _Numbers
    inputs: int
    swapped: int
    order: _Numbers | None

    def needed(self) -> tuple[_Numbers, _Numbers]:
        """Return the slots to fill and their input positions, in the order of the positions."""
        slots = np.argsort(self.origins, kind="stable")
        slots = slots[self.origins[slots] >= 0]
        return slots, self.origins[slots]


class Draws:
    """Draws slots of a buffer in blocks.

    The generator has drawn the same number at every position, however the stream was read.

    Args:
        generator: generates the draws.
        size: number of slots.
    """

    def __init__(self, generator: "np.random.Generator", size: int) -> None:
        self._generator = generator
        self._size = size
        self._block: _Numbers = np.empty(0, np.int64)
        self._listed: list[int] | None = []
        self._at = 0

    def copy(self) -> "Draws":
        """Return draws that go on from the same position."""
        copied = copy.copy(self)
        copied._generator = copy.deepcopy(self._generator)
        return copied

    def ready(self) -> int:
        """Return the number of draws that `take` can return, at least 1."""
        if self._at == len(self._block):
            self._block = self._generator.integers(0, self._size, size=_BLOCK)
            self._listed = None
            self._at = 0
        return len(self._block) - self._at

    def take(self, count: int) -> _Numbers:
        """Return the next `count` draws, at most `ready`."""
        start = self._at
        self._at = start + count
        return self._block[start : self._at]

    def take_list(self, count: int) -> list[int]:
        """Return the same as a list, whose items are read faster."""
        if self._listed is None:
            self._listed = self._block.tolist()
        start = self._at
        self._at = start + count
        return self._listed[start : self._at]

    def permutation(self, count: int) -> _Numbers:
        """Return the order of the `count` elements that are buffered at the end of the input."""
        self.ready()
        return self._generator.permutation(count)

    def replay(self, buffered: int, read: int, cardinality: int, n: int) -> Replay:
        """Draw for the next `n` positions.

        Args:
            buffered: number of full slots.
            read: number of input positions read before.
            cardinality: of the input; may be infinite.
            n: number of positions.
        """
        filled, swapped = self._size - buffered, n
        if cardinality != INFINITE_CARDINALITY:
            left = cardinality - read
            filled = min(filled, left)
            swapped = min(n, left - filled)
        origins = np.full(buffered + filled, _BUFFERED, np.int64)
        origins[buffered:] = np.arange(filled)
        done = 0
        while done < swapped:
            some = min(self.ready(), swapped - done)
            first = filled + done
            # If several positions are put into the same slot, NumPy's assignment keeps the last.
            origins[self.take(some)] = np.arange(first, first + some)
            done += some
        order = None
        if swapped < n:  # past the end of the input: the rest is permuted, and its head skipped
            order = self.permutation(len(origins))
            origins[order[: n - swapped]] = _SKIPPED
        return Replay(origins, filled + swapped, swapped, order)


def swap(buffer: list[_Numbers], slots: _Numbers, items: list[_Numbers]) -> list[_Numbers]:
    """Put items into slots in order; return the former contents of the slots.

    Args:
        buffer: columns of the buffer, changed in place.
        slots: the slot of each item; a later item may take the slot of an earlier item.
        items: columns of the items.
    """
    drawn = [column[slots] for column in buffer]
    # Sorting numbers that contain slot and turn takes a sixth of a stable argsort.
    turns = np.sort(slots * _BLOCK + np.arange(len(slots)))
    slot = turns // _BLOCK
    again = np.flatnonzero(slot[1:] == slot[:-1])
    if len(again):
        turn = turns % _BLOCK
        earlier, later = turn[again], turn[again + 1]
        for column, item in zip(drawn, items, strict=True):
            column[later] = item[earlier]
    for column, item in zip(buffer, items, strict=True):
        column[slots] = item
    return drawn
