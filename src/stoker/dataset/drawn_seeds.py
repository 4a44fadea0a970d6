"""Seeds that the user did not give.

Drawn seeds are carried beside the tree and are no part of its wire form. Therefore drawn seeds are
no part of the identity of a job, a state, a stored file, or a function that refers to a dataset:
drawn seeds come from the dataset, from the state that is resumed, or from the job.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

_lock = threading.Lock()


# Drawn seeds lie beside the tree, so that everything made of the tree (digests, states, stored
# files) leaves drawn seeds out. (docs/decisions/081)
class DrawnSeed:
    """A seed that is drawn when first used; shared by all datasets derived from a dataset.

    Therefore ``take(n)`` and ``skip(n)`` of a shuffled dataset do not overlap, as with tf.data.

    Args:
        value: the seed; ``None``: not drawn yet.
        from_global: the seed follows from a global seed, so that all workers of a service use the
            same seed, too.

    Attributes:
        is_common: all ranks of a training have this seed, which none of them drew.
    """

    def __init__(self, value: int | None = None, *, from_global: bool = False) -> None:
        self.from_global = from_global
        self.is_common = False
        self._value = value

    def get(self, draw: Callable[[], int] | None = None) -> int:
        """Return the seed, drawn by `draw` at the first call."""
        with _lock:
            if self._value is None:
                self._value = int.from_bytes(os.urandom(8), "little") if draw is None else draw()
            return self._value

    def adopt(self, value: int) -> None:
        """Replace the seed by that of an epoch which is resumed."""
        with _lock:
            self._value = value


class Salt:
    """A number that is combined with the seed of a node; shared by the copies of the node.

    A salt lets two random nodes differ that are alike otherwise. 0 changes nothing.
    """

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        self.value = value


NEW_SALT: Any = msgspec.field(default_factory=Salt)
"""The default of the field `salt` of a random node."""


class DrawnSeeds(msgspec.Struct, frozen=True):
    """The drawn seeds of a dataset as values.

    Attributes:
        seed: of the dataset; ``None``: a dispatcher draws a seed for each task or iteration.
        salts: of the nodes, as `salts_of` returns.
    """

    seed: int | None = None
    salts: list[int] = []


def _salts(nodes: Iterable[object]) -> list[Salt]:
    found = (getattr(node, "salt", None) for node in nodes)
    return [salt for salt in found if salt is not None]


def salts_of(nodes: Iterable[object]) -> list[int]:
    """Return the salts of the random nodes of a tree, in the order of their numbers.

    Args:
        nodes: the nodes of the tree, in that order.

    Returns:
        The values, without the zeros at the end.
    """
    values = [salt.value for salt in _salts(nodes)]
    while values and not values[-1]:
        values.pop()
    return values


def adopt_salts(nodes: Iterable[object], values: Sequence[int]) -> None:
    """Give the random nodes of a tree the salts that `salts_of` returned of an equal tree."""
    for index, salt in enumerate(_salts(nodes)):
        salt.value = values[index] if index < len(values) else 0


def salts_by_number(numbers: Mapping[Any, int], values: Sequence[int]) -> dict[int, int]:
    """Return the values of `salts_of` by the numbers of their nodes."""
    # Not strict: zeros at the end are left out by `salts_of`.
    random = [number for node, number in numbers.items() if hasattr(node, "salt")]
    return dict(zip(random, values, strict=False))
