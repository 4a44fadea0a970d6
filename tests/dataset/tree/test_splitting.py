"""Inputs read side by side stay aligned for any splits in any order."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stoker import Dataset
from stoker.dataset.tree.node import number
from stoker.dataset.tree.splits import IndexSplits
from stoker.dataset.tree.structure import source_summary
from stoker.errors import FailedPreconditionError
from tests.dataset.splits import ScriptedSplits
from tests.dataset.verbs import failed, opened, plain, positions


def zipped() -> Dataset:
    """Return a zip of 25 elements, the last batch having two rows."""
    return Dataset.zip(Dataset.range(98).batch(4), Dataset.range(30).map(str).prefetch(2))


def element(i: int) -> Any:
    return (list(range(4 * i, min(98, 4 * i + 4))), str(i))


def number_of(dataset: Dataset, kind: str = "zip") -> int:
    return max(n for node, n in number(dataset.node).items() if node.kind == kind)


def splits_of(dataset: Dataset, *passes: list[tuple[int, int]]) -> ScriptedSplits:
    return ScriptedSplits({number_of(dataset): list(passes)})


def test_a_zip_is_one_source_of_splits() -> None:
    dataset = Dataset.range(5).concatenate(zipped().map(lambda batch, _: batch.sum()))
    summary = [(source.kind, source.splits) for source in source_summary(dataset.node)]
    assert summary == [("range", IndexSplits(5)), ("zip", IndexSplits(25))]
    assert source_summary(dataset.node)[1].number == number_of(dataset)


def test_each_branch_reads_the_elements_that_make_the_range() -> None:
    dataset = zipped()
    stream = opened(dataset, splits=splits_of(dataset, [(3, 5), (0, 1), (20, 22)]))
    assert positions(stream) == [element(i) for i in (3, 4, 0, 20, 21)]
    stream.close()


def test_the_range_with_the_shorter_last_batch_is_read_last() -> None:
    dataset = zipped()
    stream = opened(dataset, splits=splits_of(dataset, [(22, 25), (0, 2), (7, 8)]))
    assert positions(stream) == [element(i) for i in (0, 1, 7, 22, 23, 24)]
    stream.close()


@pytest.mark.parametrize("most", [1, 2, 50])
def test_all_verbs_read_the_same_elements(most: int) -> None:
    dataset = zipped()
    runs = [(3, 9), (24, 25), (0, 1), (10, 17)]
    expected = [element(i) for i in (3, 4, 5, 6, 7, 8, 0, *range(10, 17), 24)]
    for passed in range(len(expected) + 1):
        stream = opened(dataset, splits=splits_of(dataset, runs))
        assert stream.advance(passed) == passed
        found: list[Any] = []
        while chunk := stream.next_chunk(most, 1 << 20):
            found += plain(chunk)
        assert found == expected[passed:]
        stream.close()


def test_each_repetition_of_a_zip_reads_its_own_splits() -> None:
    dataset = zipped().repeat(3)
    splits = splits_of(dataset, [(0, 2)], [], [(5, 6)])
    stream = opened(dataset, splits=splits)
    assert positions(stream) == [element(i) for i in (0, 1, 5)]
    stream.close()


def test_a_zip_in_a_zip_is_read_in_its_elements() -> None:
    inner = Dataset.zip(Dataset.range(100), Dataset.range(60).batch(2))  # of 30
    dataset = Dataset.zip(inner.batch(3).map(lambda a, b: (a, len(b))), Dataset.counter())
    assert dataset.node.splits() == IndexSplits(10)
    stream = opened(dataset, splits=splits_of(dataset, [(2, 3), (9, 10)]))
    assert positions(stream) == [(([6, 7, 8], 3), 2), (([27, 28, 29], 3), 9)]
    stream.close()


def test_a_failure_to_read_splits_reaches_every_branch() -> None:
    class Closing(ScriptedSplits):
        def open(self, source: int) -> Iterator[Any]:
            yield (0, 1)
            raise FailedPreconditionError("task 3 is closed")

    stream = opened(zipped(), splits=Closing({}))
    closed = failed(FailedPreconditionError("task 3 is closed"))
    assert positions(stream, 3) == [element(0), closed]
    stream.close()


def test_a_branch_waiting_for_a_range_does_not_delay_others() -> None:
    waiting, go_on = threading.Event(), threading.Event()

    class Slow(ScriptedSplits):
        def open(self, source: int) -> Iterator[Any]:
            yield (0, 1)
            yield (1, 2)
            waiting.set()
            assert go_on.wait(10)
            yield (2, 3)

    ahead = Dataset.range(3).prefetch(3)
    stream = opened(Dataset.zip(ahead, Dataset.range(3)), splits=Slow({}))
    assert stream.next() == (0, 0)
    assert waiting.wait(10)
    assert stream.next() == (1, 1)
    go_on.set()
    assert positions(stream) == [(2, 2)]
    stream.close()
