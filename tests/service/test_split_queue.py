"""A worker's side of handing out splits."""

from itertools import islice

from stoker.service.messages import SplitGrant, SplitRequest
from stoker.service.worker.split_queue import (
    BATCH_SECONDS,
    GROWTH,
    LOOKAHEAD_SECONDS,
    MAX_AHEAD,
    MAX_RANGES_AHEAD,
    SplitQueue,
)


def _request(**fields) -> SplitRequest:
    return SplitRequest(1, 0, 0, **fields)


def _grant(**fields) -> SplitGrant:
    return SplitGrant(1, 0, 0, **fields)


def test_a_split_is_read_only_when_its_notice_is_acknowledged():
    queue = SplitQueue(1, 0, 0)
    assert queue.need(0.0) == _request(want=2)
    assert queue.granted(_grant(splits=[(4, "a"), (5, "b")])) == _request(begin=[4])
    assert queue.take(0.0) is None
    queue.granted(_grant(begun=[4]))
    assert queue.take(0.0) == ["a"]


def test_a_refused_split_is_not_read_and_another_is_begun():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(splits=[(4, "a"), (5, "b")]))
    assert queue.granted(_grant(refused=[4])) == _request(begin=[5], want=2)
    assert queue.take(0.0) is None


def test_the_end_comes_after_all_that_was_assigned():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(splits=[(4, "a")]))
    queue.granted(_grant(begun=[4]))
    queue.granted(_grant(end=True))
    assert queue.take(0.0) == ["a"]
    assert queue.take(0.0) is None
    assert queue.need(1.0) is None
    assert queue.take(1.0) == []


def test_it_asks_once_until_it_is_answered():
    queue = SplitQueue(1, 0, 0)
    assert queue.need(0.0) == _request(want=2)
    assert queue.ask() is None


def test_the_faster_splits_are_read_the_more_are_begun_ahead():
    queue = SplitQueue(1, 0, 0)
    now = 0.0
    queue.need(now)
    queue.granted(_grant(splits=[(n, n) for n in range(200)]))
    for _ in range(40):
        while queue.take(now) is None:
            queue.granted(_grant(begun=list(queue.beginning)))
        now += LOOKAHEAD_SECONDS / 1000
        queue.need(now)
    assert queue.ahead == MAX_AHEAD


def _reads(queue: SplitQueue, seconds: float, splits: int) -> list[list[int]]:
    """What a source is handed that takes `seconds` a split; the dispatcher answers at once."""
    handed: list[list[int]] = []
    now, numbers = 0.0, iter(range(splits))
    request = queue.need(now)
    while True:
        while request is not None:
            more = [(n, (10 * n, 10 * n + 10)) for n in islice(numbers, request.want)]
            grant = _grant(begun=request.begin, splits=more, end=request.want > len(more))
            request = queue.granted(grant)
        split = queue.take(now)
        assert split is not None
        if not split:
            return handed
        [(start, stop)] = split
        handed.append([start, stop])
        now += seconds * (stop - start) / 10
        request = queue.need(now)


def test_neighbouring_ranges_are_handed_over_as_one_and_nothing_is_left_out():
    queue = SplitQueue(1, 0, 0, indexed=True)
    handed = _reads(queue, 1e-4, 4096)
    assert [start for start, _ in handed] == [0, *(stop for _, stop in handed[:-1])]
    assert handed[-1][1] == 40960
    assert len(handed) < 100


def test_a_range_is_handed_over_up_to_a_gap():
    queue = SplitQueue(1, 0, 0, indexed=True, ahead=MAX_RANGES_AHEAD)
    queue.need(0.0)
    ranges = [(n, (n, n + 1)) for n in (0, 1, 2, 7, 8)]
    queue.granted(_grant(splits=ranges))
    queue.granted(_grant(begun=[n for n, _ in ranges]))
    assert queue.take(0.0) == [(0, 3)]
    queue.need(0.0)
    assert queue.take(0.0) == [(7, 9)]


def test_the_values_of_a_listed_source_are_handed_over_one_by_one():
    queue = SplitQueue(1, 0, 0, ahead=MAX_AHEAD)
    queue.need(0.0)
    queue.granted(_grant(splits=[(0, [0, 1]), (1, [1, 2])]))
    queue.granted(_grant(begun=[0, 1]))
    assert queue.take(0.0) == [[0, 1]]


def test_a_source_is_handed_a_quarter_of_what_is_begun_so_that_the_rest_covers_a_notice():
    queue = SplitQueue(1, 0, 0, indexed=True, ahead=16)
    queue.need(0.0)
    ranges = [(n, (n, n + 1)) for n in range(100)]
    queue.granted(_grant(splits=ranges))
    queue.granted(_grant(begun=list(queue.beginning)))
    assert queue.take(0.0) == [(0, 4)]
    assert len(queue.begun) == 12


def test_of_quick_ranges_few_more_are_begun_than_before_and_slow_ones_are_begun_alone_again():
    queue = SplitQueue(1, 0, 0, indexed=True)
    queue.need(0.0)
    queue.granted(_grant(splits=[(n, (2 * n, 2 * n + 1)) for n in range(200)]))
    seen = []
    for seconds in (1e-6, 1e-6, 60.0, 1e-6):
        while queue.take(0.0) is None:
            queue.granted(_grant(begun=list(queue.beginning)))
        queue.need(seconds)
        seen.append(queue.ahead)
    assert seen == [GROWTH, GROWTH**2, 1, GROWTH]


def test_no_fewer_are_asked_for_than_are_worth_a_round_trip():
    queue = SplitQueue(1, 0, 0, indexed=True)
    now = 0.0
    request = queue.need(now)
    assert request is not None
    assert request.least == 1
    queue.granted(_grant(splits=[(0, (0, 1)), (1, (1, 2))]))
    queue.granted(_grant(begun=[0]))
    queue.take(now)
    queue.need(now + BATCH_SECONDS / 3)
    request = queue.granted(_grant(begun=[1], splits=[(2, (2, 3))]))
    assert request is not None
    assert request.least == 3


def test_a_slow_split_is_begun_alone():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(splits=[(0, "a"), (1, "b"), (2, "c")]))
    queue.granted(_grant(begun=[0]))
    queue.take(0.0)
    queue.need(60.0)
    assert (queue.ahead, list(queue.beginning)) == (1, [1])


def test_after_a_broken_session_notices_are_repeated_and_assignments_given_up():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(splits=[(4, "a"), (5, "b")]))
    assert queue.reattach() == _request(begin=[4], want=2)
    assert not queue.assigned
    queue.granted(_grant(begun=[4]))
    assert queue.take(0.0) == ["a"]


def test_a_queue_at_its_end_has_nothing_to_repeat():
    queue = SplitQueue(1, 0, 0)
    queue.need(0.0)
    queue.granted(_grant(end=True))
    assert queue.reattach() is None
