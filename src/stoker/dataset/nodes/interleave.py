"""interleave: maps elements to datasets and reads several of these in turn."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from stoker.dataset.nodes.nested import NestedDatasets
from stoker.dataset.streams.caching import LazyStream
from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.threads import pool
from stoker.dataset.threads.readmany import ReadMany
from stoker.dataset.threads.turns import TurnsStream
from stoker.dataset.tree.node import AUTOTUNE, Context, FunctionOfElements
from stoker.dataset.unpacking import arguments_of

# The most threads with AUTOTUNE: datasets are interleaved to wait for several files, and a thread
# that waits needs no core.
_AUTOTUNE_THREADS = 16

# The most elements and bytes of each dataset read ahead on threads.
_AHEAD_ELEMENTS = 128
_AHEAD_BYTES = 64 << 20


class Interleave(FunctionOfElements, frozen=True, eq=False, kw_only=True):
    """Reads `cycle_length` datasets in turn, `block_length` elements from each.

    Attributes:
        cycle_length: number of datasets read in turn.
        block_length: elements of a dataset before the turn of the next.
        num_parallel_calls: None to read in the consumer's thread, else the most datasets read
            concurrently on the pool; AUTOTUNE for all.
        deterministic: False to yield, with `num_parallel_calls`, the elements that are ready
            first.
    """

    kind: ClassVar[str] = "interleave"
    keeps_endless: ClassVar[bool] = True
    tuning: ClassVar[frozenset[str]] = frozenset({"num_parallel_calls"})
    cycle_length: int
    block_length: int = 1
    num_parallel_calls: int | None = None
    deterministic: bool = True

    @property
    def unrepeatable(self) -> str:  # type: ignore[override]
        if self.deterministic or self.num_parallel_calls is None:
            return ""
        return "with deterministic=False its order depends on threads; leave that argument out"

    def open(self, context: Context) -> Stream:
        nested = NestedDatasets(context, self, self.function.value)

        def make_stream(index: int, element: Any) -> Stream:
            return LazyStream(partial(_open, nested, index, element))

        stream = context.open(self.input)
        limit = self._limit(context)
        if limit is None:
            in_turn = _InTurn(stream, make_stream)
            return TurnsStream(in_turn, self.cycle_length, self.block_length)
        # In order, further datasets are read ahead while those of the cycle wait for their turns.
        most_open = self.cycle_length + limit
        budget = min(_AHEAD_BYTES, context.autotune_bytes or _AHEAD_BYTES)
        many = ReadMany(
            stream,
            make_stream,
            limit=limit,
            most_open=most_open if self.deterministic else self.cycle_length,
            max_elements=max(2 * self.block_length, _AHEAD_ELEMENTS),
            max_bytes=max(1, budget // most_open),
        )
        if not self.deterministic:
            return _AnyOrderStream(many, self.block_length)
        return _TurnsAhead(many, self.cycle_length, self.block_length)

    def _limit(self, context: Context) -> int | None:
        """Return the number of threads; None to read inline, as always in a pool thread."""
        # A pool thread that waited for further threads of the pool could wait without end.
        # (docs/decisions/087)
        if self.num_parallel_calls is None or pool.in_pool_thread():
            return None
        wanted = self.num_parallel_calls
        if wanted == AUTOTUNE:
            wanted = _AUTOTUNE_THREADS
        limit = min(wanted, self.cycle_length)
        return limit if context.threads is None else max(1, min(limit, context.threads))


def _open(nested: NestedDatasets, index: int, element: Any) -> Stream:
    if isinstance(element, Failure):
        raise element.error
    return nested.open(index, arguments_of(element))


class _InTurn:
    """Makes a stream of each element at its turn."""

    def __init__(self, stream: Stream, make_stream: Callable[[int, Any], Stream]) -> None:
        self._stream = stream
        self._make_stream = make_stream
        self._index = -1

    def next(self) -> Stream | None:
        self._index += 1
        try:
            element = self._stream.next()
        except StopIteration:
            return None
        except Exception as error:  # noqa: BLE001 - raised at its position
            element = Failure(error)
        return self._make_stream(self._index, element)

    def ready(self, stream: Stream, max_elements: int, max_bytes: int) -> list[Any]:
        # Nothing is read ahead in the thread of the reader.
        return []

    def close(self) -> None:
        self._stream.close()


class _TurnsAhead(TurnsStream):
    """Yields the elements of datasets that are read ahead."""

    def __init__(self, many: ReadMany, cycle_length: int, block_length: int) -> None:
        super().__init__(many, cycle_length, block_length)
        self._many = many
        self.work: Work = many.work

    def filled(self) -> float:
        return self._many.filled()


class _AnyOrderStream(Stream):
    """Yields the elements that are ready first, up to a block of each dataset."""

    def __init__(self, many: ReadMany, block_length: int) -> None:
        self._many = many
        self.work: Work = many.work
        self._block = block_length

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy:
            max_elements = 1
        return self._many.take_any(max_elements, max_bytes, self._block)

    def filled(self) -> float:
        return self._many.filled()

    def close(self) -> None:
        self._many.close()
