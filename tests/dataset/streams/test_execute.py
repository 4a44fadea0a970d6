"""Opening trees, and where failures came from."""

from typing import Any

import numpy as np
import pytest

from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import Origin, failure_origin, mark_failure, raise_failure
from stoker.dataset.tree.node import Context, number
from tests.dataset.splits import ScriptedSplits


def test_inner_and_nested_contexts_extend_the_epoch() -> None:
    root = Dataset.range(3).batch(2).node
    context = Context(seed=1, epoch=(4,), splits=ScriptedSplits({}))
    assert context.inner(2).epoch == (4, 2)
    assert context.inner(2).splits is context.splits
    nested = context.nested(root, 5, context.meters)
    assert nested.epoch == (4, 5)
    assert nested.splits is None
    assert nested.numbers == number(root)


def test_sources_read_the_splits_they_are_given_back_to_back() -> None:
    tree = Dataset.range(100).map(lambda x: -x).node
    splits = ScriptedSplits({0: [[(10, 12), (50, 50), (0, 3)]]})
    stream = open_stream(tree, Context(splits=splits))
    assert [stream.next(), *stream.next_chunk(100, 1 << 20)] == [-10, -11]
    assert [stream.next(), stream.advance(1), stream.next()] == [0, 1, -2]
    with pytest.raises(StopIteration):
        stream.next()


def test_a_failure_names_node_site_and_element() -> None:
    dataset = Dataset.range(5).map(lambda x: 1 // (x - 3))
    iterator = iter(dataset)
    with pytest.raises(ZeroDivisionError) as caught:
        list(iterator)
    origin = failure_origin(caught.value)
    assert origin == Origin("map", dataset.node.site, 3, "3")
    place = f"({dataset.node.site}), for the input 3, at element 3"
    assert caught.value.__notes__ == [f"raised in `map` {place}"]


def test_the_innermost_origin_stays() -> None:
    error = mark_failure(ValueError("x"), Origin("map", "a.py:1", 2))
    assert mark_failure(error, Origin("filter", "b.py:1", 0)) is error
    assert failure_origin(error) == Origin("map", "a.py:1", 2)
    assert failure_origin(ValueError("y")) is None


def test_a_stop_iteration_of_the_users_becomes_a_runtime_error() -> None:
    stop = StopIteration()
    with pytest.raises(RuntimeError, match="`map` raised StopIteration") as caught:
        raise_failure(stop, Origin("map", "a.py:1", 2))
    assert caught.value.__cause__ is stop


def test_an_exception_that_takes_no_attributes_keeps_its_note() -> None:
    class ClosedError(Exception):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "__stoker_origin__":
                raise AttributeError(name)
            super().__setattr__(name, value)

    error = mark_failure(ClosedError(), Origin("map", "a.py:1", None))
    assert error.__notes__ == ["raised in `map` (a.py:1)"]
    assert failure_origin(error) is None


def endless_searches(never: Any) -> list[Dataset]:
    count = Dataset.counter()
    return [
        count.filter(never),
        count.filter(never).repeat().batch(2),
        count.filter(never).skip(5),
        count.map(lambda x: never(x) or 0).unique().skip(1).window(2),
        count.flat_map(lambda x: Dataset.range(int(never(x)))),
        count.interleave(lambda x: Dataset.range(int(never(x))), 2),
        count.map(lambda x: np.zeros(int(never(x)))).unbatch(),
        count.rejection_resample(lambda x: int(never(x)), [0.0, 1.0], [0.5, 0.5]),
        Dataset.zip(count, Dataset.random().enumerate().map(lambda x, _: x).filter(never)),
    ]


@pytest.mark.parametrize("which", range(9))
def test_closing_ends_a_search_that_finds_nothing(which: int) -> None:
    """`close` may come from another thread; here it comes out of the function that is searched."""

    def never(x: int) -> bool:
        assert x < 50_000
        if x == 1000:
            stream.close()
        return False

    stream = open_stream(endless_searches(never)[which].node, Context())
    with pytest.raises(StopIteration):
        stream.next()
    assert stream.next_chunk(9, 1 << 20) == []
