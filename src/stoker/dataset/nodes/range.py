"""range: evenly spaced integers."""

from typing import Any, ClassVar

import numpy as np

from stoker.dataset.execute import Context
from stoker.dataset.node import IndexSplits, Node
from stoker.dataset.source import IndexStream
from stoker.dataset.spec import Spec, TensorSpec
from stoker.dataset.stream import Stream

_INT_BYTES = 8


class Range(Node, frozen=True, eq=False, kw_only=True):
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

    def splits(self) -> IndexSplits:
        return IndexSplits(self.cardinality())

    def open(self, context: Context) -> Stream:
        numbers = self._numbers()

        def read(start: int, stop: int) -> list[Any]:
            return list(numbers[start:stop])

        return IndexStream(context, self, len(numbers), _INT_BYTES, read)
