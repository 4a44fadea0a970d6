"""Arithmetic between the positions of a node's elements and those of its input's elements."""

from collections.abc import Iterator
from typing import NamedTuple


class InputPositions(NamedTuple):
    """Element p is made of the `group` inputs from position ``p * stride + offset`` on.

    The last element may have fewer inputs.
    """

    stride: int = 1
    offset: int = 0
    group: int = 1

    def of(self, positions: range, length: int) -> Iterator[range]:
        """Yield the positions of the inputs of some elements, in order.

        Args:
            positions: of the elements.
            length: number of elements of the input.
        """
        stride, offset, group = self
        start, stop = positions.start * stride + offset, positions.stop * stride + offset
        if group == 1:
            yield range(start, stop, positions.step * stride)
        elif positions.step == 1 and stride == group:
            yield range(start, min(stop, length))
        else:
            for first in range(start, stop, positions.step * stride):
                yield range(first, min(first + group, length))
