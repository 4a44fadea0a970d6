"""Random generators, keyed so that any draw can be repeated anywhere."""

import itertools
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from stoker.dataset import global_generators
from stoker.dataset.streams.calls.task_calls import StreamCalls
from stoker.dataset.tree.node import Context, Node
from stoker.errors import FailedPreconditionError, InvalidTypeError

# SeedSequence accepts no negative numbers, which seeds of users may be.
_SEED_MASK = 2**64 - 1

# Prefixes of the keys of `generator`, of the global generators, and of these while `per_worker`
# builds an object, so that these keys differ from the keys of the nodes' own draws.
_IN_FUNCTIONS = 1
_GLOBAL = 2
_BUILDING = 3


def node_seed(
    context: Context, node: Node, seed: int | None = None, *, per_epoch: bool = True
) -> "np.random.SeedSequence":
    """Return the seed of `node` in this epoch: a function of (seed, node number, epoch).

    Args:
        context: the context of the node.
        node: a node of the tree that the context numbers.
        seed: the user's seed of the node; ``None``: none.
        per_epoch: False to draw the same in every epoch.
    """
    entropy = context.seed_of(node, seed)
    epoch = context.epoch if per_epoch else ()
    key = (context.numbers[node], *epoch)
    return np.random.SeedSequence(entropy & _SEED_MASK, spawn_key=key)


def rng(
    context: Context, node: Node, seed: int | None = None, *, per_epoch: bool = True
) -> "np.random.Generator":
    """Return a generator seeded by `node_seed`."""
    return np.random.Generator(np.random.PCG64(node_seed(context, node, seed, per_epoch=per_epoch)))


def generator(seed: int | None = None) -> "np.random.Generator":
    """Return the generator of the current element, for user functions of a dataset.

    Its draws are a function of the seed, the epoch, the node and the position of the element, and
    do not depend on threads, the timing of workers, or where reading started. Within a call of
    the function, calls with the same seed return the same generator.

    Args:
        seed: an int of 64 bits; ``None``: the seed of the dataset (`Options.seed`). Under a service
            each task draws its own, unless `Options.seed` or this is given.

    Raises:
        FailedPreconditionError: if no function of a dataset is running in this thread.
        InvalidTypeError: if `seed` is neither an int nor None.

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
    """Consecutive calls of a node's function by a thread.

    This class costs little, since a map makes millions of calls: the element is determined only
    when `generator` is called. With `Context.seed_globals`, taking an element seeds the global
    generators for the call that follows.

    Args:
        context: the context of the node.
        node: the node of the function, in the tree that the context numbers.

    Attributes:
        seeds_globals: each element must be taken within the ``with`` block, before its call.

    Example::

        with calls.over(iter(block), index + len(block)) as elements:
            results.extend(map(function, elements))
    """

    def __init__(self, context: Context, node: Node) -> None:
        self._context = context
        self._node = node
        self.seeds_globals = context.seed_globals
        self._before: Calls | None = None
        self._elements: Iterator[Any] = iter(())
        self._stop = 0
        self._drawn = -1
        self._generators: dict[int | None, np.random.Generator] = {}

    def recorded(self) -> StreamCalls | None:
        """Return the record of these calls in flight, if any; costs some microseconds."""
        return stream_calls(self._context, self._node)

    def over(self, elements: Iterator[Any], stop: int) -> "Calls":
        """Return a context manager in which a call is for the element that `elements` yielded last.

        Args:
            elements: an iterator with a length hint, such as iterators of lists and tuples.
            stop: the position after its last element, in the function's input.
        """
        self._elements = elements
        self._stop = stop
        return self

    def __enter__(self) -> Iterator[Any]:
        self._before, _running.calls = _running.calls, self
        if not self.seeds_globals:
            return self._elements
        global_generators.lock.acquire()
        return self._seeded()

    def __exit__(self, *error: object) -> None:
        _running.calls = self._before
        if self.seeds_globals:
            global_generators.lock.release()

    def _seeded(self) -> Iterator[Any]:
        for element in self._elements:
            context = self._context
            number, index = in_whole(context, self._node, self._index_of(element))
            global_generators.seed_generators(_GLOBAL, context.seed, number, *context.epoch, index)
            yield element

    def _index_of(self, element: Any) -> int:
        """Return the position of the call that follows, with this element."""
        return self._index()

    def _index(self) -> int:
        """Return the position of the current call in the function's input."""
        # A map calls its function for blocks of elements in C, so nothing may run per element: the
        # position follows from the number of elements left. (docs/decisions/084)
        return self._stop - operator.length_hint(self._elements) - 1

    def generator(self, seed: int | None) -> "np.random.Generator":
        """Return the generator for the current call; see the function `generator`."""
        index = self._index()
        if index != self._drawn:
            self._drawn, self._generators = index, {}
        made = self._generators.get(seed)
        if made is None:
            if not (seed is None or type(seed) is int):
                raise InvalidTypeError(f"`seed` must be an int or None; got {seed!r}")
            made = self._generators[seed] = self._make(seed, index)
        return made

    def _make(self, seed: int | None, index: int) -> "np.random.Generator":
        context = self._context
        entropy = context.seed if seed is None else seed
        number, index = in_whole(context, self._node, index)
        key = (_IN_FUNCTIONS, number, *context.epoch, index)
        sequence = np.random.SeedSequence(entropy & _SEED_MASK, spawn_key=key)
        return np.random.Generator(np.random.PCG64(sequence))


class CallsAtPositions(Calls):
    """Calls of a function whose elements carry their positions.

    Args:
        context: keys the randomness of the calls.
        node: keys the randomness of the calls.
        recorded: returns the record of the calls in flight, if any.
        position_of: returns the position that an element carries.
    """

    def __init__(
        self,
        context: Context,
        node: Node,
        recorded: Callable[[], StreamCalls | None],
        position_of: Callable[[Any], int],
    ) -> None:
        super().__init__(context, node)
        self._recorded_calls = recorded
        self._position_of = position_of
        self._position = 0

    def recorded(self) -> StreamCalls | None:
        return self._recorded_calls()

    def _index_of(self, element: Any) -> int:
        return self._position_of(element)

    def _index(self) -> int:
        return self._position


def begin_at(position: int) -> None:
    """Note that the call in this thread, one of `CallsAtPositions`, is at this position."""
    calls = _running.calls
    assert isinstance(calls, CallsAtPositions)
    # Consecutive calls may have one position, which is asked for again.
    calls._position, calls._drawn = position, -1


def in_whole(context: Context, node: Node, index: int) -> tuple[int, int]:
    """Return a node's number and the position of an element, as in an epoch read as a whole.

    As without `Node.division`, and as if all positions were read in order.
    """
    if context.positions is not None:
        number = context.numbers[node]
        return number, context.positions.position(number, index)
    for below in _dividing_nodes(node):
        count, part = below.division() or (1, 0)
        index = index * count + part
    return number_in_whole(context, node), index + context.bases.get(context.numbers[node], 0)


def number_in_whole(context: Context, node: Node) -> int:
    """Return a node's number, as without `Node.division`."""
    # A source that yields a part replaces the source of the whole, and other nodes are added.
    return context.numbers[node] - sum(bool(below.inputs) for below in _dividing_nodes(node))


def _dividing_nodes(node: Node) -> list[Node]:
    found = []
    while len(inputs := node.inputs) == 1:
        [node] = inputs
        if node.division() is not None:
            found.append(node)
    return found


def with_globals_seeded(
    context: Context, node: Node, function: Callable[..., Any]
) -> Callable[..., Any]:
    """Return `function`; on the user's request, each call seeds the global generators.

    For functions without the position of an element: calls are counted from 0.
    """
    if not context.seed_globals:
        return function
    count = itertools.count()  # `next` is atomic: several threads may call the function

    def call(*arguments: Any) -> Any:
        with keyed(context, node, next(count)):
            return function(*arguments)

    return call


@contextmanager
def building() -> Iterator[None]:
    """Let an object that outlives the current call draw the same whichever call is the builder."""
    calls = _running.calls
    if calls is None or not calls.seeds_globals:
        yield
        return
    with global_generators.seeded_apart(_BUILDING, calls._context.seed):
        yield


def stream_calls(context: Context, node: Node) -> StreamCalls | None:
    """Return the record of the calls of a node's function, if calls are recorded."""
    if context.calls is None:
        return None
    number = context.numbers[node]
    place = None if context.positions is None else partial(context.positions.place, number)
    return context.calls.stream(number, context.epoch, place)


def in_function() -> bool:
    """Return whether a function of a dataset runs in this thread."""
    return _running.calls is not None


class _Running(threading.local):
    calls: Calls | None = None


_running = _Running()


@contextmanager
def keyed(
    context: Context,
    node: Node,
    index: int,
    recorded: StreamCalls | None = None,
    element: Any = None,
) -> Iterator[None]:
    """Let `generator` draw for the call of `node` at position `index`, in a ``with`` block.

    Args:
        context: the context of the node.
        node: the node of the function.
        index: the number of the element.
        recorded: records the call.
        element: the element, if the call is recorded.
    """
    slot = -1 if recorded is None else recorded.begin(index, index + 1, element)
    try:
        with Calls(context, node).over(iter((None,)), index + 1) as elements:
            next(elements)
            yield
    finally:
        if recorded is not None:
            recorded.end(slot)
