"""map: a user's function applied to every element, inline or on the pool."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.random import Calls
from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads import pool
from stoker.dataset.threads.adaptive import AdaptiveCalls
from stoker.dataset.threads.inline import InlineCalls
from stoker.dataset.threads.parallel import Finish, OrderedCalls
from stoker.dataset.threads.tuning import MOST_THREADS, Tuning, default_bytes
from stoker.dataset.tree.node import AUTOTUNE, Context, FunctionOfElements


class Map(FunctionOfElements, frozen=True, eq=False, kw_only=True):
    """Applies a function to every element; plain tuples are unpacked into its arguments.

    Attributes:
        num_parallel_calls: None for the consumer's thread, AUTOTUNE for what `Tuning` finds; a
            number of pool threads that call the function.
    """

    kind: ClassVar[str] = "map"
    tuning: ClassVar[frozenset[str]] = frozenset({"num_parallel_calls"})
    one_to_one: ClassVar[bool] = True
    num_parallel_calls: int | None = None

    def input_positions(self) -> InputPositions:
        return InputPositions()

    def called(self, context: Context) -> Callable[..., Any]:
        """Return the function that is called with each element."""
        function: Callable[..., Any] = self.function.value
        return function

    def keyed_calls(self, context: Context) -> Callable[[], Calls]:
        """Return the function that makes what keys the randomness of the calls of a thread."""
        return partial(Calls, context, self)

    def open(self, context: Context) -> Stream:
        return self.open_calls(context)

    def open_calls(
        self,
        context: Context,
        finish_with: Callable[[int], Finish] | None = None,
        group: int = 1,
    ) -> Stream:
        """Open this node for a node above.

        Args:
            context: of the pass.
            finish_with: see `OrderedCalls`; results computed inline are yielded unchanged.
            group: elements that are needed together.
        """
        function = self.called(context)
        origin = context.origin(self)
        new_calls = self.keyed_calls(context)
        limit = self._limit(context, group)
        stream = context.open(self.input)
        if limit is None:
            return InlineCalls(stream, function, origin, new_calls())
        return AdaptiveCalls(
            stream,
            lambda inputs, work: InlineCalls(inputs, function, origin, new_calls(), work),
            lambda inputs, work: OrderedCalls(
                inputs,
                function,
                limit,
                origin,
                new_calls,
                finish_with=finish_with,
                group=group,
                work=work,
            ),
            # AUTOTUNE starts inline, because passing a call to a thread and back takes about 20 µs.
            # (docs/decisions/087)
            begin_inline=self.num_parallel_calls == AUTOTUNE,
        )

    def _limit(self, context: Context, group: int) -> int | Tuning | None:
        """Return the number of concurrent calls; None for inline, as always in a pool thread."""
        # A pool thread that waited for further threads of the pool could wait without end.
        # (docs/decisions/087)
        if self.num_parallel_calls is None or pool.in_pool_thread():
            return None
        if context.seed_globals:
            return 1  # more would wait for the lock of the generators
        if self.num_parallel_calls != AUTOTUNE:
            return min(self.num_parallel_calls, context.threads or self.num_parallel_calls)
        cores = pool.available_cpus()
        return Tuning(
            cores=cores,
            most=context.threads or max(MOST_THREADS, cores),
            max_bytes=context.autotune_bytes or default_bytes(cores),
            group=group,
        )
