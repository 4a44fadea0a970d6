"""Calls on the pool in order: their times."""

import threading

from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.range import Range
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.threads.adaptive import AdaptiveCalls
from stoker.dataset.tree.node import Context
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
