"""map: a function of the user's on every element, inline or on the pool."""

import time
from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import Any, ClassVar

from stoker.dataset.pickled import Pickled
from stoker.dataset.random import Calls
from stoker.dataset.streams.failures import Origin, mark_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads import pool
from stoker.dataset.threads.adaptive import MEASURE_SECONDS, AdaptiveCalls
from stoker.dataset.threads.parallel import CHEAP_SECONDS, OrderedCalls
from stoker.dataset.threads.tuning import MOST_THREADS, Tuning, default_bytes
from stoker.dataset.tree.node import AUTOTUNE, Context, Node
from stoker.dataset.unpacking import apply
from stoker.elements.sizes import element_bytes
from stoker.elements.spec import Spec, UnknownSpec

# A chunk is handed on when computing it has taken this long.
_CHUNK_SECONDS = 0.5e-3

# Calls between two looks at the clock: few enough that a function that turns slow is noticed.
_LARGEST_BLOCK = 64

# Twice the price of a thread's help: below it a measured function stays inline.
_COSTLY_SECONDS = 2 * CHEAP_SECONDS


class Map(Node, frozen=True, eq=False, kw_only=True):
    """Applies a function to every element; plain tuples are unpacked into its arguments.

    Attributes:
        input: what it reads.
        function: the user's; called on threads where `num_parallel_calls` is given.
        num_parallel_calls: None for the consumer's thread, AUTOTUNE for what `Tuning` finds.
        spec: the element_spec the user declared.
    """

    kind: ClassVar[str] = "map"
    tuning: ClassVar[frozenset[str]] = frozenset({"num_parallel_calls"})
    input: Node
    function: Pickled
    num_parallel_calls: int | None = None
    spec: Pickled | None = None

    def element_spec(self) -> Spec:
        return UnknownSpec() if self.spec is None else self.spec.value

    def cardinality(self) -> int:
        return self.input.cardinality()

    def inputs_per_element(self) -> int:
        return 1

    def open(self, context: Context) -> Stream:
        function: Callable[..., Any] = self.function.value
        origin = Origin(self.kind, self.site, None)
        limit = parallel_limit(self.num_parallel_calls, context)
        stream = self.input.open(context)
        new_calls = partial(Calls, context, self)
        inline = InlineMap(stream, function, origin, new_calls())
        if limit is None:
            return inline
        return AdaptiveCalls(
            inline,
            lambda: OrderedCalls(stream, function, limit, origin, new_calls),
            probe=self.num_parallel_calls == AUTOTUNE,
        )


def parallel_limit(
    num_parallel_calls: int | None, context: Context, size: int = 1
) -> int | Tuning | None:
    """How many calls at once; None for inline, as always in a pool thread.

    Args:
        num_parallel_calls: what the user gave.
        context: of the pass.
        size: elements in a unit of delivery.
    """
    if num_parallel_calls is None or pool.in_pool_thread():
        return None
    if num_parallel_calls != AUTOTUNE:
        return min(num_parallel_calls, context.threads or num_parallel_calls)
    cores = pool.available_cpus()
    return Tuning(
        cores=cores,
        most=context.threads or max(MOST_THREADS, cores),
        max_bytes=context.autotune_bytes or default_bytes(cores),
        size=size,
    )


class InlineMap(Stream):
    """Calls the function in the thread that reads.

    How long a chunk may become is foreseen from what the calls before took: a call that suddenly
    blocks holds back the elements of its chunk. On the pool (`num_parallel_calls`) none is.

    Attributes:
        seconds: spent in the function since the last verdict of `costly`.
        mean_seconds: of a call, by that verdict.
    """

    def __init__(
        self, stream: Stream, function: Callable[..., Any], origin: Origin, keyed: Calls
    ) -> None:
        self._stream = stream
        self._function = function
        self._origin = origin
        self._keyed = keyed
        self._index = 0
        self._inputs: list[Any] = []
        self._at = 0
        self._error: BaseException | None = None
        self._block = 1
        self._result_bytes = 1 << 20
        self.seconds = 0.0
        self.mean_seconds = 0.0
        self._kept = 0
        self._calls = 0

    def next(self) -> Any:
        self._raise_kept()
        if self._at < len(self._inputs):
            element = self._inputs[self._at]
            self._at += 1
        else:
            element = self._read(self._stream.next)
        index = self._index
        self._index += 1
        start = time.perf_counter()
        try:
            with self._keyed.over(iter((element,)), index + 1) as elements:
                return apply(self._function, next(elements))
        except StopIteration as error:
            raise mark_failure(error, self._origin._replace(index=index)) from error
        except Exception as error:
            mark_failure(error, self._origin._replace(index=index))
            raise
        finally:
            self.seconds += time.perf_counter() - start
            self._calls += 1

    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        self._raise_kept()
        if self._at == len(self._inputs):
            self._inputs = self._read(lambda: self._stream.next_chunk(max_elements, max_bytes))
            self._at = 0
        results: list[Any] = []
        start = time.perf_counter()
        deadline = start + _CHUNK_SECONDS
        while self._at < len(self._inputs) and len(results) < max_elements:
            fitting = max(1, max_bytes // self._result_bytes)
            size = min(self._block, max_elements - len(results), fitting)
            block = self._inputs[self._at : self._at + size]
            before = len(results)
            self._compute(block, results)
            now = time.perf_counter()
            self.seconds += now - start
            self._block = _next_block(self._block, now - start)
            start = now
            if self._error is not None:
                break
            self._result_bytes = element_bytes(results[-1])
            max_bytes -= (len(results) - before) * self._result_bytes
            if now > deadline or max_bytes <= 0:
                break
        if not results:
            self._raise_kept()
        return results

    def advance(self, n: int) -> int:
        passed = 0
        if n and self._error is not None:
            self._error = None
            passed = 1
        held = min(n - passed, len(self._inputs) - self._at)
        self._at += held
        beyond = self._stream.advance(n - passed - held) if n > passed + held else 0
        self._index += held + beyond
        return passed + held + beyond

    def close(self) -> None:
        self._stream.close()

    def costly(self) -> bool:
        calls, seconds = self._calls, self.seconds
        if seconds < MEASURE_SECONDS:
            return False
        self._calls, self.seconds = 0, 0.0
        self.mean_seconds = seconds / calls
        self._kept = max(self._kept - 1, 0)
        return not self._kept and self.mean_seconds > _COSTLY_SECONDS

    def keep(self, verdicts: int) -> None:
        self._kept = verdicts + 1

    def hand_over(self) -> tuple[list[Any], list[Any], int] | None:
        """Gives up the inputs it has read; None while an error waits to be raised."""
        if self._error is not None:
            return None
        inputs = self._inputs[self._at :]
        self._inputs, self._at = [], 0
        return [], inputs, self._index

    def resume(self, index: int) -> None:
        self._index = index
        self._calls, self.seconds = 0, 0.0

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except StopIteration:
            raise
        except Exception:
            self._index += 1
            raise

    def _raise_kept(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _compute(self, block: list[Any], results: list[Any]) -> None:
        """Append the results up to the first failure, which is kept."""
        function, before = self._function, len(results)
        kinds = set(map(type, block))
        error: Exception | None = None
        try:
            with self._keyed.over(iter(block), self._index + len(block)) as elements:
                if tuple not in kinds:
                    results.extend(map(function, elements))
                elif len(kinds) == 1:
                    results.extend(starmap(function, elements))
                else:
                    results.extend(map(partial(apply, function), elements))
        except Exception as raised:  # noqa: BLE001 - kept for its position
            error = raised
        done = len(results) - before
        if error is None and done < len(block):
            error = StopIteration()  # the function's own: it ended `extend` early
        passed = done if error is None else done + 1
        if error is not None:
            self._error = mark_failure(error, self._origin._replace(index=self._index + done))
        self._at += passed
        self._index += passed
        self._calls += passed


def _next_block(block: int, seconds: float) -> int:
    if seconds > _CHUNK_SECONDS:
        return max(1, block // 8)
    return min(block * 2, _LARGEST_BLOCK) if seconds < _CHUNK_SECONDS / 4 else block
