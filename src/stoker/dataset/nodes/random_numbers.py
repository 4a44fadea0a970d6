"""random: numbers computed from their position."""

from typing import Any, ClassVar

import numpy as np

from stoker.dataset.drawn_seeds import NEW_SALT, Salt
from stoker.dataset.random import node_seed
from stoker.dataset.streams.source import IndexStream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import INFINITE_CARDINALITY, Context, IndexSource
from stoker.dataset.tree.splits import ENDLESS
from stoker.elements.spec import Spec, TensorSpec

_INT_BYTES = 8

# Philox computes four words of 64 bits, eight numbers of 32, from each value of its counter.
_WORDS = 4
_NUMBERS = 8


class RandomNumbers(IndexSource, frozen=True, eq=False, kw_only=True):
    """Integers in ``[0, 2**32)`` without end, each a function of (seed, node, epoch, position).

    Attributes:
        seed: the user's; None for that of the context.
        rerandomize_each_iteration: False to yield the same in every epoch.
    """

    kind: ClassVar[str] = "random"
    seed: int | None = None
    salt: Salt = NEW_SALT
    rerandomize_each_iteration: bool = False

    def element_spec(self) -> Spec:
        return TensorSpec((), np.int64)

    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    def open(self, context: Context) -> Stream:
        sequence = node_seed(context, self, self.seed, per_epoch=self.rerandomize_each_iteration)
        key = sequence.generate_state(2, np.uint64)

        def read(start: int, stop: int) -> list[Any]:
            first = start // _NUMBERS
            words = (-(-stop // _NUMBERS) - first) * _WORDS
            drawn = np.random.Philox(key=key, counter=first).random_raw(words)
            # Little-endian, so that every machine splits the words in the same order.
            numbers = drawn.astype("<u8", copy=False).view("<u4")
            offset = first * _NUMBERS
            found: list[Any] = numbers[start - offset : stop - offset].tolist()
            return found

        return IndexStream(context, self, ENDLESS, _INT_BYTES, read)
