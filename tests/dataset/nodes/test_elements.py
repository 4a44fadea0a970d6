"""elements: the source that windows and groups are."""

import pickle

import numpy as np
import pytest

from stoker import Dataset
from stoker.dataset.nodes.elements import Elements
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.splits import IndexSplits
from stoker.dataset.tree.structure import source_summary
from stoker.elements.spec import TensorSpec, UnknownSpec
from tests.dataset.splits import ScriptedSplits
from tests.dataset.verbs import check_verbs, opened, positions


def test_it_is_its_elements() -> None:
    dataset = Dataset(Elements.of([1, "a", None], None, "here.py:1"))
    assert check_verbs(lambda: dataset) == [1, "a", None]
    assert dataset.cardinality() == 3
    assert dataset.element_spec == UnknownSpec()
    assert dataset.node.site == "here.py:1"
    assert list(Dataset(Elements.of([], None, ""))) == []


def test_it_can_be_pickled() -> None:
    spec = TensorSpec((2,), np.int64)
    dataset = Dataset(Elements.of([np.array([1, 2]), np.array([3, 4])], Pickled.of(spec), ""))
    copy = pickle.loads(pickle.dumps(dataset))
    assert [array.tolist() for array in copy] == [[1, 2], [3, 4]]
    assert copy.element_spec == spec


def test_a_reader_may_change_its_containers() -> None:
    dataset = Dataset(Elements.of([{"a": [1]}], None, ""))
    for _ in range(2):
        (element,) = dataset
        assert element == {"a": [1]}
        element["a"].append(2)


def test_it_can_be_split() -> None:
    dataset = Dataset(Elements.of([5, 6, 7, 8], None, ""))
    (source,) = source_summary(dataset.node)
    assert source.splits == IndexSplits(4)
    stream = opened(dataset, splits=ScriptedSplits({0: [[(1, 3)]]}))
    assert positions(stream) == [6, 7]


def test_advance_is_free() -> None:
    stream = opened(Dataset(Elements.of(list(range(100)), None, "")))
    assert stream.advance(99) == 99
    assert positions(stream) == [99]


def test_windows_of_a_pass_can_be_kept_and_read_later() -> None:
    kept = list(Dataset.range(4).window(2))
    assert [list(window) for window in reversed(kept)] == [[2, 3], [0, 1]]


@pytest.mark.parametrize("count", [1, 5])
def test_chunks_are_as_long_as_asked(count: int) -> None:
    stream = opened(Dataset(Elements.of(list(range(10)), None, "")))
    assert stream.next_chunk(count, 1 << 20) == list(range(count))
