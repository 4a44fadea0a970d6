"""The tree to run."""

import gc
import weakref

from stoker import Dataset
from stoker.dataset.nodes import Batch, Map, MapAndBatch
from stoker.dataset.tree.node import Node, number
from stoker.dataset.tree.rewrite import rewrite


def rewritten(dataset: Dataset) -> Node:
    return rewrite(dataset.node, number(dataset.node))[0]


def test_a_parallel_map_and_its_batch_become_one_node() -> None:
    dataset = Dataset.range(5).map(abs, num_parallel_calls=2).batch(3, drop_remainder=True)
    fused = rewritten(dataset)
    assert type(fused) is MapAndBatch
    assert type(dataset.node) is Batch
    assert type(dataset.node.input) is Map
    assert fused.input is dataset.node.input
    assert (fused.batch_size, fused.drop_remainder) == (3, True)
    assert fused.site == dataset.node.site


def test_a_map_in_the_reading_thread_is_left_as_it_is() -> None:
    dataset = Dataset.range(5).map(abs).batch(3)
    assert rewritten(dataset) is dataset.node


def test_the_fused_node_keeps_the_number_of_the_batch() -> None:
    dataset = Dataset.range(5).map(abs, 2).batch(3).shuffle(4)
    numbers = number(dataset.node)
    tree, new = rewrite(dataset.node, numbers)
    assert new[tree] == numbers[dataset.node] == 3
    assert new[tree.inputs[0]] == 2


def test_epochs_and_derived_datasets_share_the_rewritten_node() -> None:
    cached = Dataset.range(5).map(abs, 2).batch(3).cache()
    once = rewritten(cached)
    assert rewritten(cached) is once
    assert rewritten(cached.take(1)).inputs[0] is once
    assert once is not cached.node


def test_a_forgotten_tree_is_forgotten() -> None:
    dataset = Dataset.range(5).map(abs, 2).batch(3).cache()
    gone = [weakref.ref(dataset.node), weakref.ref(rewritten(dataset))]
    unchanged = Dataset.range(3)
    gone.append(weakref.ref(rewritten(unchanged)))
    del dataset, unchanged
    gc.collect()
    assert [ref() for ref in gone] == [None, None, None]
