"""repeat."""

import time
from collections.abc import Iterable

import pytest

from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context
from stoker.elements.sizes import PLAIN_BYTES
from tests.dataset.splits import ScriptedSplits


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, [0, 1]), (3, [0, 1] * 3)])
def test_it_reads_its_input_count_times(count: int, expected: list[int]) -> None:
    assert list(Dataset.range(2).repeat(count)) == expected


@pytest.mark.parametrize("count", [None, -1, -2, -9])
def test_without_a_count_it_has_no_end(count: int | None) -> None:
    assert list(Dataset.range(2).repeat(count).take(5)) == [0, 1, 0, 1, 0]


def test_a_chunk_has_several_repetitions_of_a_few_elements() -> None:
    stream = open_stream(Dataset.range(2).cache().repeat(7).node, Context())
    stream.next_chunk(2, 1000)  # fills the cache
    sizes = []
    while chunk := stream.next_chunk(8192, 1 << 20):
        sizes.append(len(chunk))
    assert sum(sizes) == 12
    assert max(sizes) > 2
    assert stream.next_chunk(8192, 1 << 20) == []


def test_joined_repetitions_stay_within_the_limits_of_a_chunk() -> None:
    stream = open_stream(Dataset.range(2).repeat().node, Context())
    for _ in range(20):
        assert len(stream.next_chunk(5, 1 << 20)) <= 4
        assert len(stream.next_chunk(100, 4 * PLAIN_BYTES)) <= 4
        assert len(stream.next_chunk(100, 1 << 20, lazy=True)) <= 2


def test_an_error_after_joined_repetitions_keeps_its_position() -> None:
    calls = iter([1, 1, 0, 1])
    stream = open_stream(Dataset.range(1).map(lambda x: 1 // next(calls)).repeat(4).node, Context())
    found: list[object] = []
    for _ in range(10):
        try:
            chunk = stream.next_chunk(100, 1 << 20)
        except ZeroDivisionError:
            found.append("error")
        else:
            found += chunk
    assert found == [1, 1, "error", 1]


def test_a_slow_repetition_is_not_waited_for() -> None:
    stream = open_stream(Dataset.range(1).map(_slow).repeat(3).node, Context())
    assert [len(stream.next_chunk(100, 1 << 20)) for _ in range(4)] == [1, 1, 1, 0]


def _slow(number: int) -> int:
    time.sleep(0.002)
    return number


def test_an_endless_repeat_of_nothing_ends() -> None:
    assert list(Dataset.range(0).repeat()) == []
    assert open_stream(Dataset.range(0).repeat(3).node, Context()).next_chunk(5, 100) == []
    assert list(Dataset.range(9).filter(lambda x: False).repeat()) == []
    stream = open_stream(Dataset.range(9).filter(lambda x: False).repeat().node, Context())
    assert stream.next_chunk(5, 100) == []
    assert stream.advance(5) == 0


def test_a_repetition_of_errors_is_not_an_empty_one() -> None:
    iterator = iter(Dataset.range(1).map(lambda x: 1 // x).repeat())
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            next(iterator)


class Counts:
    """Function that returns an iterable of the next count of elements, 3 after the last."""

    def __init__(self, *counts: int) -> None:
        self._counts = list(counts)

    def __call__(self) -> Iterable[int]:
        return range(self._counts.pop(0) if self._counts else 3)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((1, 0, 2), [0, 0, 1]), ((2, 0, 0, 1), [0, 0, 1]), ((0, 1), [])],
)
def test_after_a_shuffle_it_passes_empty_repetitions_as_tensorflow_does(
    counts: tuple[int, ...], expected: list[int]
) -> None:
    shuffled = Dataset.from_generator(Counts(*counts)).shuffle(9, seed=1)
    assert sorted(shuffled.repeat().take(3)) == expected
    assert sorted(Dataset.from_generator(Counts(2, 0, 0)).shuffle(9).repeat(3)) == [0, 1]
    assert list(Dataset.from_generator(Counts(1, 0, 2)).repeat()) == [0]


def test_after_a_shuffle_an_exhausted_generator_ends_it() -> None:
    elements = iter(range(3))
    assert sorted(Dataset.from_generator(lambda: elements).shuffle(9).repeat()) == [0, 1, 2]


def test_each_repetition_is_reshuffled() -> None:
    elements = list(Dataset.range(20).shuffle(20, seed=1).repeat(2))
    assert sorted(elements[:20]) == sorted(elements[20:])
    assert elements[:20] != elements[20:]


def test_advance_skips_whole_repetitions_without_opening_them() -> None:
    opened: list[int] = []
    dataset = Dataset.range(10).map(opened.append).repeat()
    stream = open_stream(dataset.node, Context())
    assert stream.advance(10**15 + 3) == 10**15 + 3
    stream.next()
    assert opened == [3]
    assert open_stream(Dataset.range(10).repeat(3).node, Context()).advance(10**9) == 30


def test_advance_does_not_trust_a_length_that_may_be_wrong() -> None:
    # An endless repeat counts as infinite, as in tf.data, though there may be nothing to repeat.
    dataset = Dataset.range(3).filter(lambda x: False).repeat().take(5).repeat(2)
    assert dataset.cardinality() == 10
    assert open_stream(dataset.node, Context()).advance(10) == 0


def test_every_repetition_of_a_source_requests_its_own_splits() -> None:
    splits = ScriptedSplits({0: [[(0, 2)], [], [(5, 7)]]})
    stream = open_stream(Dataset.range(9).repeat(4).node, Context(splits=splits))
    assert [stream.next() for _ in range(4)] == [0, 1, 5, 6]
    assert stream.next_chunk(1, 1) == []
    assert splits.opened == {0: 4}


def test_an_endless_repeat_outlasts_a_repetition_without_splits() -> None:
    splits = ScriptedSplits({0: [[(0, 2)], [], [(5, 7)]]})
    stream = open_stream(Dataset.range(9).repeat().node, Context(splits=splits))
    assert [stream.next() for _ in range(4)] == [0, 1, 5, 6]


def test_after_close_there_is_nothing() -> None:
    stream = open_stream(Dataset.range(9).repeat().node, Context())
    stream.next()
    stream.close()
    stream.close()
    assert stream.next_chunk(5, 100) == []
