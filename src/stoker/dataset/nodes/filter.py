"""filter: the elements a predicate accepts."""

import time
from collections.abc import Callable
from functools import partial
from itertools import chain, islice
from operator import length_hint
from typing import Any, ClassVar, NoReturn

from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.random import Calls
from stoker.dataset.streams.blocks import BlockStream
from stoker.dataset.streams.deadline import CHUNK_SECONDS, chunk_deadline
from stoker.dataset.streams.failures import raise_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.dataset.unpacking import apply


class Filter(OneInput, frozen=True, eq=False, kw_only=True):
    """The elements for which the predicate is true."""

    kind: ClassVar[str] = "filter"
    function: Pickled

    def open(self, context: Context) -> Stream:
        return _FilterStream(context, self, context.open(self.input))


class _FilterStream(BlockStream):
    def __init__(self, context: Context, node: Filter, stream: Stream) -> None:
        super().__init__(stream, node.origin, Calls(context, node))
        self._function: Callable[..., Any] = node.function.value
        # Elements in a block that the predicate is called for without a look at the clock.
        self._size = 1

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if (lazy or max_elements == 1) and self._failure is None and self._recorded is None:
            # Half of the time of a block of one element.
            while not self._ended and (length_hint(self._block) or self._read(1, max_bytes, lazy)):
                try:
                    with self._keyed as elements:
                        for element in elements:
                            if apply(self._function, element):
                                return [element]
                except Exception as error:  # noqa: BLE001 - user code may raise anything
                    raise_failure(error, self._origin_of_last())
            return []
        return super().next_chunk(max_elements, max_bytes, lazy)

    def _compute(self, chunk: list[Any], max_elements: int, max_bytes: int) -> None:
        deadline = chunk_deadline()
        # Calling without a wrapper is four times as fast; only tuples need the wrapper.
        unpacks = tuple in self._block_types()
        predicate = partial(apply, self._function) if unpacks else self._function
        while length_hint(self._block):
            begun = time.perf_counter()
            # `extend` takes a predicate's StopIteration for the end, so the end is made to differ.
            failure: Exception | None = StopIteration()
            try:
                with self._keyed as elements:
                    block = chain(islice(elements, self._size), iter(_end_block, None))
                    room = max_elements - len(chunk)
                    chunk.extend(islice(filter(predicate, block), room))
            except _BlockEnd:
                failure = None
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                failure = error
            if failure is not None and len(chunk) < max_elements:
                self._fail(failure)
                return
            now = time.perf_counter()
            if now - begun < CHUNK_SECONDS:
                self._size = min(2 * self._size, 1 << 16)
            else:
                self._size = max(1, self._size // 2)
            if chunk and (len(chunk) >= max_elements or now >= deadline):
                return


class _BlockEnd(Exception):  # noqa: N818 - no error
    """The predicate has seen all elements of a block."""


def _end_block() -> NoReturn:
    raise _BlockEnd
