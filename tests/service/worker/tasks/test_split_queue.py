"""Splits on a worker."""

from itertools import islice

from stoker.service.messages import SplitGrant, SplitRequest
from stoker.service.worker.tasks.round_trip import LOOKAHEAD_SECONDS
from stoker.service.worker.tasks.split_queue import (
    BATCH_SECONDS,
    GROWTH,
    MAX_AHEAD,
    MAX_RANGES_AHEAD,
    SplitQueue,
)


def _request(**fields) -> SplitRequest:
    return SplitRequest(1, 0, 0, **fields)


def _grant(**fields) -> SplitGrant:
    return SplitGrant(1, 0, 0, **fields)


def test_split_is_read_only_after_it_is_begun():
    queue = SplitQueue(1, 0, 0)
    assert queue.need(0.0) == _request(want=2)
    assert queue.granted(_grant(splits=[(4, "a"), (5, "b")]), 0.0) == _request(begin=[4])
    assert queue.take(0.0) is None
    queue.granted(_grant(begun=[4]), 0.0)
    assert queue.take(0.0) == ["a"]


def test_refused_split_is_replaced_by_another():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(splits=[(4, "a"), (5, "b")]), 0.0)
    assert queue.granted(_grant(refused=[4]), 0.0) == _request(begin=[5], want=2)
    assert queue.take(0.0) is None


def test_end_follows_all_assigned_splits():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(splits=[(4, "a")]), 0.0)
    queue.granted(_grant(begun=[4]), 0.0)
    queue.granted(_grant(end=True), 0.0)
    assert queue.take(0.0) == ["a"]
    assert queue.take(0.0) is None
    assert queue.need(1.0) is None
    assert queue.take(1.0) == []


def test_request_is_not_repeated_before_its_answer():
    queue = SplitQueue(1, 0, 0)
    assert queue.need(0.0) == _request(want=2)
    assert queue.ask(0.0) is None


def test_faster_reading_begins_more_splits_ahead():
    queue = SplitQueue(1, 0, 0)
    now = 0.0
    queue.need(now)
    queue.granted(_grant(splits=[(n, n) for n in range(200)]), 0.0)
    for _ in range(40):
        while queue.take(now) is None:
            queue.granted(_grant(begun=list(queue.beginning)), 0.0)
        now += LOOKAHEAD_SECONDS / 1000
        queue.need(now)
    assert queue.ahead == MAX_AHEAD


def _reads(queue: SplitQueue, seconds: float, splits: int) -> list[list[int]]:
    """Return the splits of a source that takes `seconds` for each, with immediate answers."""
    handed: list[list[int]] = []
    now, numbers = 0.0, iter(range(splits))
    request = queue.need(now)
    while True:
        while request is not None:
            more = [(n, (10 * n, 10 * n + 10)) for n in islice(numbers, request.want)]
            grant = _grant(begun=request.begin, splits=more, end=request.want > len(more))
            request = queue.granted(grant, now)
        split = queue.take(now)
        assert split is not None
        if not split:
            return handed
        [(start, stop)] = split
        handed.append([start, stop])
        now += seconds * (stop - start) / 10
        request = queue.need(now)


def test_neighbouring_ranges_are_merged_without_gaps():
    queue = SplitQueue(1, 0, 0, indexed=True)
    handed = _reads(queue, 1e-4, 4096)
    assert [start for start, _ in handed] == [0, *(stop for _, stop in handed[:-1])]
    assert handed[-1][1] == 40960
    assert len(handed) < 100


def test_merged_range_ends_at_a_gap():
    queue = SplitQueue(1, 0, 0, indexed=True, ahead=MAX_RANGES_AHEAD)
    queue.need(0.0)
    ranges = [(n, (n, n + 1)) for n in (0, 1, 2, 7, 8)]
    queue.granted(_grant(splits=ranges), 0.0)
    queue.granted(_grant(begun=[n for n, _ in ranges]), 0.0)
    assert queue.take(0.0) == [(0, 3)]
    queue.need(0.0)
    assert queue.take(0.0) == [(7, 9)]


def test_listed_splits_are_not_merged():
    queue = SplitQueue(1, 0, 0, ahead=MAX_AHEAD)
    queue.need(0.0)
    queue.granted(_grant(splits=[(0, [0, 1]), (1, [1, 2])]), 0.0)
    queue.granted(_grant(begun=[0, 1]), 0.0)
    assert queue.take(0.0) == [[0, 1]]


def test_merged_range_is_a_quarter_of_the_splits_ahead():
    queue = SplitQueue(1, 0, 0, indexed=True, ahead=16)
    queue.need(0.0)
    ranges = [(n, (n, n + 1)) for n in range(100)]
    queue.granted(_grant(splits=ranges), 0.0)
    queue.granted(_grant(begun=list(queue.beginning)), 0.0)
    assert queue.take(0.0) == [(0, 4)]
    assert len(queue.begun) == 12


def test_splits_ahead_grow_slowly_and_shrink_immediately():
    queue = SplitQueue(1, 0, 0, indexed=True)
    queue.need(0.0)
    queue.granted(_grant(splits=[(n, (2 * n, 2 * n + 1)) for n in range(200)]), 0.0)
    seen = []
    for seconds in (1e-6, 1e-6, 60.0, 1e-6):
        while queue.take(0.0) is None:
            queue.granted(_grant(begun=list(queue.beginning)), 0.0)
        queue.need(seconds)
        seen.append(queue.ahead)
    assert seen == [GROWTH, GROWTH**2, 1, GROWTH]


def test_request_has_a_least_number_of_splits():
    queue = SplitQueue(1, 0, 0, indexed=True)
    now = 0.0
    request = queue.need(now)
    assert request is not None
    assert request.least == 1
    queue.granted(_grant(splits=[(0, (0, 1)), (1, (1, 2))]), 0.0)
    queue.granted(_grant(begun=[0]), 0.0)
    queue.take(now)
    queue.need(now + BATCH_SECONDS / 3)
    request = queue.granted(_grant(begun=[1], splits=[(2, (2, 3))]), 0.0)
    assert request is not None
    assert request.least == 3


def test_slow_split_is_begun_alone():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(splits=[(0, "a"), (1, "b"), (2, "c")]), 0.0)
    queue.granted(_grant(begun=[0]), 0.0)
    queue.take(0.0)
    queue.need(60.0)
    assert (queue.ahead, list(queue.beginning)) == (1, [1])


def test_new_session_repeats_announcements_only():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(splits=[(4, "a"), (5, "b")]), 0.0)
    assert queue.reattach() == _request(begin=[4], want=2)
    assert not queue.assigned
    queue.granted(_grant(begun=[4]), 0.0)
    assert queue.take(0.0) == ["a"]


def test_ended_queue_has_nothing_to_repeat():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(end=True), 0.0)
    assert queue.reattach() is None


def test_splits_that_were_given_back_are_asked_for_again():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    assert queue.granted(_grant(splits=[(4, "a"), (5, "b")]), 0.0) == _request(begin=[4])
    assert queue.give_back(0.0) == _request(want=2)
    queue.granted(_grant(splits=[(4, "a"), (6, "c")]), 0.0)  # 4 was granted before it was begun
    queue.granted(_grant(begun=[4]), 0.0)
    assert queue.take(0.0) == ["a"]
    assert queue.need(1.0) == _request(begin=[6], want=2)


def test_on_demand_nothing_lies_idle():
    """It asks when the source waits, and announces at once all that it gets."""
    queue = SplitQueue(1, 0, 0, ahead=3, on_demand=True)
    assert queue.ask(0.0) is None
    assert queue.need(0.0) == _request(want=3)
    given = _grant(splits=[(4, "a"), (5, "b"), (6, "c"), (7, "d")])
    assert queue.granted(given, 0.0) == _request(begin=[4, 5, 6, 7])
    assert queue.granted(_grant(begun=[4, 5, 6, 7]), 0.0) is None
    assert queue.take(0.0) == ["a"]
    assert queue.look_ahead(9.0, 1.0) is None
    assert queue.reattach() is None
