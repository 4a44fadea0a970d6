"""filter: the elements a predicate accepts."""

import operator
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, ClassVar

from stoker.dataset.pickled import Pickled
from stoker.dataset.random import Calls
from stoker.dataset.streams.failures import Origin, mark_failure, raise_failure
from stoker.dataset.streams.stream import ChunkedStream, Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node
from stoker.dataset.unpacking import apply
from stoker.elements.spec import Spec

# A chunk is computed in blocks: one that takes this long is not doubled.
_BLOCK_SECONDS = 0.0005


class Filter(Node, frozen=True, eq=False, kw_only=True):
    """The elements for which the predicate is true."""

    kind: ClassVar[str] = "filter"
    input: Node
    function: Pickled

    def element_spec(self) -> Spec:
        return self.input.element_spec()

    def cardinality(self) -> int:
        return 0 if self.input.cardinality() == 0 else UNKNOWN_CARDINALITY

    def open(self, context: Context) -> Stream:
        return _FilterStream(self, context)


class _FilterStream(ChunkedStream):
    """Asks the predicate about each element; those not yet asked about wait in `_block`.

    An error behind elements already accepted waits in `_failure` for the next call.
    """

    def __init__(self, node: Filter, context: Context) -> None:
        self._node = node
        self._input = node.input.open(context)
        self._keyed = Calls(context, node)
        self._function: Callable[..., Any] = node.function.value
        self._predicate = self._function
        self._block: Iterator[Any] = iter(())
        self._examined = 0
        self._size = 1
        self._failure: Exception | None = None

    def next(self) -> Any:
        self._raise_failure()
        while True:
            element = next(self._block, _END)
            if element is _END:
                element = self._input.next()
            self._examined += 1
            try:
                with self._keyed.over(iter((element,)), self._examined) as elements:
                    accepted = bool(apply(self._function, next(elements)))
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                raise_failure(error, self._origin())
            if accepted:
                return element

    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        self._raise_failure()
        chunk: list[Any] = []
        while not chunk or operator.length_hint(self._block):
            if not operator.length_hint(self._block):
                elements = self._input.next_chunk(max(max_elements, 1), max_bytes)
                if not elements:
                    return []
                self._block = iter(elements)
                # Calling without a wrapper is four times as fast; only tuples need it.
                unpacks = tuple in set(map(type, elements))
                self._predicate = partial(apply, self._function) if unpacks else self._function
            if not self._examine(chunk, max_elements):
                break
        return chunk

    def _examine(self, chunk: list[Any], max_elements: int) -> bool:
        """Adds what is accepted of the block until it is used up; False if the chunk is done."""
        deadline = 0.0
        while left := operator.length_hint(self._block):
            size = min(self._size, max_elements - len(chunk), left)
            begun = time.perf_counter()
            # `extend` takes a predicate's StopIteration for the end, so the end is made to differ.
            failure: Exception | None = StopIteration()
            try:
                with self._keyed.over(self._block, self._examined + left) as elements:
                    chunk.extend(filter(self._predicate, chain(islice(elements, size), _BLOCK_END)))
            except _BlockEnd:
                failure = None
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                failure = error
            self._examined += left - operator.length_hint(self._block)
            if failure is not None:
                self._failure = mark_failure(failure, self._origin())
                if not chunk:
                    self._raise_failure()
                return False
            now = time.perf_counter()
            if now - begun < _BLOCK_SECONDS:
                self._size = min(2 * self._size, 1 << 16)
            else:
                self._size = max(1, self._size // 2)
            deadline = deadline or begun + 2 * _BLOCK_SECONDS
            if chunk and (len(chunk) >= max_elements or now >= deadline):
                return False
        return True

    def _origin(self) -> Origin:
        return Origin("filter", self._node.site, self._examined - 1)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def close(self) -> None:
        self._input.close()


_END = object()


class _BlockEnd(Exception):  # noqa: N818 - no error
    """The predicate has seen all elements of a block."""


class _EndOfBlock:
    """An iterator that says so by raising."""

    def __iter__(self) -> "_EndOfBlock":
        return self

    def __next__(self) -> Any:
        raise _BlockEnd


_BLOCK_END = _EndOfBlock()
