"""Randomness: every random stream is keyed, so that any of them can be drawn again anywhere."""

import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from stoker.dataset.tree.node import Context, Node
from stoker.errors import FailedPreconditionError, InvalidArgumentError

_SEED_MASK = 2**64 - 1

# In front of the keys of `generator`, so that none equals that of a node's own draws.
_IN_FUNCTIONS = 1


def node_seed(
    context: Context, node: Node, seed: int | None = None, *, per_epoch: bool = True
) -> "np.random.SeedSequence":
    """The seed of `node` in this pass: a function of (seed, the node's number, the epoch).

    Args:
        context: of the pass.
        node: one of the tree the context numbers.
        seed: what the user gave; ``None`` for the context's.
        per_epoch: False to draw the same in every pass.
    """
    entropy = context.seed if seed is None else seed
    epoch = context.epoch if per_epoch else ()
    key = (context.numbers[node], *epoch)
    return np.random.SeedSequence(entropy & _SEED_MASK, spawn_key=key)


def rng(
    context: Context, node: Node, seed: int | None = None, *, per_epoch: bool = True
) -> "np.random.Generator":
    """A generator seeded by `node_seed`."""
    return np.random.Generator(np.random.PCG64(node_seed(context, node, seed, per_epoch=per_epoch)))


def generator(seed: int | None = None) -> "np.random.Generator":
    """Randomness for a function of a dataset, the same whenever the same element is computed.

    What it draws is a function of the seed, the pass, the place in the pipeline and the element's
    position: not of threads, of workers' timing, or of where reading began. Within one call of the
    function every use with the same seed goes on with the same generator.

    Args:
        seed: an int of 64 bits; ``None``: the dataset's own (`Options.seed`). Under a service each
            task draws its own, unless `Options.seed` or this is given.

    Raises:
        FailedPreconditionError: no function of a dataset is running in this thread.
        InvalidArgumentError: `seed` is no int.

    Example:
        >>> import stoker
        >>> def jitter(x):
        ...     return x + stoker.random.generator().normal()
        >>> noisy = stoker.Dataset.range(3).map(jitter)
        >>> list(noisy.iterator(epoch=0)) == list(noisy.iterator(epoch=0))
        True
    """
    calls = _running.calls
    if calls is None:
        raise FailedPreconditionError(
            "stoker.random.generator() is for functions that a dataset calls (map, filter, ...), "
            "in the thread that calls them; elsewhere use numpy.random.default_rng(seed)"
        )
    return calls.generator(seed)


class Calls:
    """The calls of one node's function, made one after the other by one thread.

    Cheap, since a map makes millions: which element a call is for is found out when `generator`
    asks.

    Args:
        context: of the pass.
        node: whose function it is; one of the tree the context numbers.

    Example::

        with calls.over(iter(block), index + len(block)) as elements:
            results.extend(map(function, elements))
    """

    __slots__ = ("_before", "_context", "_drawn", "_elements", "_generators", "_node", "_stop")

    def __init__(self, context: Context, node: Node) -> None:
        self._context = context
        self._node = node
        self._before: Calls | None = None
        self._elements: Iterator[Any] = iter(())
        self._stop = 0
        self._drawn = -1
        self._generators: dict[int | None, np.random.Generator] = {}

    def over(self, elements: Iterator[Any], stop: int) -> "Calls":
        """In its ``with`` block, a call is for the element that `elements` yielded last.

        Args:
            elements: an iterator that knows how many are left, as those of lists and tuples do.
            stop: the position, in the function's input, behind its last element.
        """
        self._elements = elements
        self._stop = stop
        return self

    def __enter__(self) -> Iterator[Any]:
        self._before, _running.calls = _running.calls, self
        return self._elements

    def __exit__(self, *error: object) -> None:
        _running.calls = self._before

    def generator(self, seed: int | None) -> "np.random.Generator":
        """See the function of this name."""
        index = self._stop - operator.length_hint(self._elements) - 1
        if index != self._drawn:
            self._drawn = index
            self._generators = {}
        made = self._generators.get(seed)
        if made is None:
            if not (seed is None or type(seed) is int):
                raise InvalidArgumentError(f"`seed` must be an int or None; got {seed!r}")
            made = self._generators[seed] = self._make(seed, index)
        return made

    def _make(self, seed: int | None, index: int) -> "np.random.Generator":
        context = self._context
        entropy = context.seed if seed is None else seed
        key = (_IN_FUNCTIONS, context.numbers[self._node], *context.epoch, index)
        sequence = np.random.SeedSequence(entropy & _SEED_MASK, spawn_key=key)
        return np.random.Generator(np.random.PCG64(sequence))


class _Running(threading.local):
    calls: Calls | None = None


_running = _Running()


@contextmanager
def keyed(context: Context, node: Node, index: int) -> Iterator[None]:
    """In its ``with`` block `generator` draws for `node`'s call at position `index`."""
    with Calls(context, node).over(iter((None,)), index + 1) as elements:
        next(elements)
        yield
