"""Calls on the pool in order: their times."""

import threading
from functools import partial

from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.range import Range
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.random import Calls
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import Origin
from stoker.dataset.threads.adaptive import AdaptiveCalls
from stoker.dataset.threads.parallel import OrderedCalls
from stoker.dataset.threads.tuning import CallReport, Tuning
from stoker.dataset.tree.node import Context, number
from tests.serving import eventually

SECONDS = 20.0


def test_a_call_that_ends_after_closing_is_not_counted() -> None:
    """Else it would count beside the calls that are made inline then, without a lock."""
    begun, gate = threading.Event(), threading.Event()

    def function(x: int) -> int:
        begun.set()
        assert gate.wait(SECONDS)
        return x

    node = Map(
        input=Range(start=0, stop=1, step=1), function=Pickled.of(function), num_parallel_calls=1
    )
    stream = open_stream(node, Context())
    assert isinstance(stream, AdaptiveCalls)
    calls = stream._parallel
    assert calls is not None
    assert begun.wait(SECONDS)
    [call] = calls._calls
    assert stream.advance(1) == 1
    calls.close(close_stream=False)
    gate.set()
    assert eventually(lambda: call.done)
    assert stream.work.calls == 0
    stream.close()


class UndoneSteps(Tuning):
    """Undoes a step, with its read-ahead, after each call."""

    def finished(self, call: CallReport) -> bool:
        super().finished(call)
        self.read_ahead = 6
        return True


def test_a_slow_call_does_not_stop_the_others_after_an_undone_step() -> None:
    """The limit may change with the last call that ends before the slow one."""
    gate = threading.Event()

    def function(x: int) -> int:
        if x == 0:
            assert gate.wait(SECONDS), "nothing was computed behind the slow call"
        if x == 50:
            gate.set()
        return x

    source = Range(start=0, stop=60, step=1)
    node = Map(input=source, function=Pickled.of(function), num_parallel_calls=2)
    context = Context(numbers=number(node))
    stream = OrderedCalls(
        context.open(source),
        function,
        UndoneSteps(cores=2, most=2, max_bytes=1 << 20),
        Origin("map", "", None),
        partial(Calls, context, node),
    )
    stream.start(0)
    assert [stream.next() for _ in range(60)] == list(range(60))
    stream.close()
