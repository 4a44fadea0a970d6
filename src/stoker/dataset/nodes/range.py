"""range and counter: evenly spaced integers, with and without end."""

from typing import Any, ClassVar

import numpy as np

from stoker.dataset.collation.tables import NumberTable
from stoker.dataset.streams.source import IndexStream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import INFINITE_CARDINALITY, Context, IndexSource
from stoker.dataset.tree.splits import ENDLESS
from stoker.dataset.tree.table import Table
from stoker.elements.spec import Spec, TensorSpec

_INT_BYTES = 8

# A year of 30 million elements per second.
_LAST_ROW = 2**50


class Range(IndexSource, frozen=True, eq=False, kw_only=True):
    """The integers of ``range(start, stop, step)``."""

    kind: ClassVar[str] = "range"
    start: int
    stop: int
    step: int

    def _numbers(self) -> range:
        return range(self.start, self.stop, self.step)

    def element_spec(self) -> Spec:
        return TensorSpec((), np.int64)

    def cardinality(self) -> int:
        return len(self._numbers())

    def table(self) -> Table | None:
        return NumberTable(self.start, self.step)

    def open(self, context: Context) -> Stream:
        numbers = self._numbers()
        return IndexStream(
            context, self, len(numbers), _INT_BYTES, lambda start, stop: list(numbers[start:stop])
        )


class Counter(IndexSource, frozen=True, eq=False, kw_only=True):
    """The integers `start`, ``start + step``, ... without end."""

    kind: ClassVar[str] = "counter"
    start: int
    step: int

    def element_spec(self) -> Spec:
        return TensorSpec((), np.int64)

    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    def table(self) -> Table | None:
        last = self.start + self.step * _LAST_ROW  # later ones are never reached
        return NumberTable(self.start, self.step) if -(2**63) <= last < 2**63 else None

    def open(self, context: Context) -> Stream:
        first, step = self.start, self.step

        def read(start: int, stop: int) -> list[Any]:
            # `range` refuses a step of 0.
            if step == 0:
                return [first] * (stop - start)
            return list(range(first + start * step, first + stop * step, step))

        return IndexStream(context, self, ENDLESS, _INT_BYTES, read)
