"""A worker's side of handing out splits."""

from stoker.service.messages import SplitGrant, SplitRequest
from stoker.service.worker.splits import LOOKAHEAD_SECONDS, MAX_AHEAD, SplitQueue


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
