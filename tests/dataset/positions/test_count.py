"""Which datasets are counted, and the node that prevents it."""

import numpy as np
import pytest

import stoker
from stoker import Dataset
from stoker.dataset.positions.arithmetic import nodes_by_position, position_below
from stoker.dataset.positions.count import count_positions
from stoker.dataset.positions.counted import Counted, NotCounted
from stoker.dataset.tree.node import Node
from stoker.dataset.tree.splits import ENDLESS


def _fail(*_):
    raise AssertionError("counting calls no function")


RANGE = Dataset.range(10)
ARRAYS = Dataset.from_tensor_slices((np.arange(6), np.eye(6)))


@pytest.mark.parametrize(
    ("dataset", "length"),
    [
        (RANGE, 10),
        (ARRAYS.shuffle(3).repeat(4).batch(5), 5),
        (ARRAYS.batch(4, drop_remainder=True), 1),
        (RANGE.map(_fail).batch(4), 3),
        (RANGE.map(_fail).shuffle(3).map(_fail).shuffle(10).batch(4).skip(1), 2),
        (RANGE.map(_fail).cache().shuffle(3).map(_fail).prefetch(2).take(4), 4),
        (RANGE.cache().snapshot("/nowhere").map(_fail).enumerate(), 10),
        (Dataset.zip(RANGE.shuffle(2), ARRAYS).map(_fail), 6),
        (Dataset.from_tensors(1).map(_fail), 1),
        (Dataset.random().take(7).map(_fail), 7),
        (Dataset.counter().shuffle(5).map(_fail).batch(3), ENDLESS),
        (RANGE.repeat().map(_fail), ENDLESS),
        (RANGE.skip(20).batch(3), 0),
        (RANGE.shard(4, 1), 3),
    ],
)
def test_counted_datasets_have_their_length(dataset, length):
    assert count_positions(dataset.node) == Counted(length)


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda d: d.filter(_fail).map(_fail).shuffle(3).batch(2), "filter", "after `distribute`"),
        (lambda d: d.map(_fail).unbatch().repeat(2), "unbatch", "distributed_epoch"),
        (lambda d: d.map(_fail).batch(2).repeat(), "repeat", "before `map`"),
        (lambda d: d.batch(2).shuffle(2), "shuffle", "shuffle numbers"),
        (lambda d: Dataset.zip(d, d.map(_fail)), "zip", "before `map`"),
        (lambda d: d.map(_fail).concatenate(d), "concatenate", "after `distribute`"),
        (lambda d: d.scan(0, _fail).batch(3), "scan", "depend on all"),
        (lambda d: d.map(_fail).enumerate().shuffle(2), "shuffle", "shuffle numbers"),
        (lambda d: d.snapshot("/nowhere", reader_func=_fail), "snapshot", "reader_func"),
        (lambda d: d.shard(stoker.SHARD_HINT, stoker.SHARD_HINT), "shard", "give `shard` numbers"),
        (
            lambda _: Dataset.from_generator(lambda: iter(())).map(_fail),
            "from_generator",
            "in `map`",
        ),
        (lambda _: Dataset.random().shuffle(3).map(_fail), "shuffle", "shuffle numbers"),
    ],
)
def test_the_first_node_that_prevents_it_is_named(make, kind, words):
    dataset = make(RANGE)
    counted = count_positions(dataset.node)
    assert isinstance(counted, NotCounted)
    assert counted.kind == kind
    assert counted.site.startswith("tests/dataset/positions/test_count.py:")
    assert words in counted.why


def above(dataset: Dataset, source: Dataset) -> list[Node]:
    nodes, below = nodes_by_position(dataset.node)
    assert below is source.node
    return nodes


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda d: d.map(_fail), [0, 1, 2, 10, 10]),
        (lambda d: d.batch(3), [0, 3, 6, 10, 10]),
        (lambda d: d.skip(2).batch(3), [2, 5, 8, 10, 10]),
        (lambda d: d.batch(2).skip(1).map(_fail).batch(2), [2, 6, 10, 10, 10]),
        (lambda d: d.shard(3, 1).batch(2), [1, 7, 10, 10, 10]),
        (lambda d: d.take(4).batch(3, drop_remainder=True), [0, 3, 4, 4, 4]),
    ],
)
def test_a_position_is_one_of_the_source_below(make, expected):
    nodes = above(make(RANGE), RANGE)
    assert [position_below(nodes, position) for position in (0, 1, 2, 10, 11)] == expected
