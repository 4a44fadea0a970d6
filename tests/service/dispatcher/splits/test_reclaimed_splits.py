"""Splits that a task holds without beginning them, while other tasks wait."""

from stoker.service import messages as m
from tests.service.dispatcher.test_dispatcher_logic import C1, W1, W2, Talk, talk_with_held_split


def _pass(talk: Talk, seconds: float) -> list[tuple[int, object]]:
    """Advance the clock, with heartbeats of all."""
    said = []
    for _ in range(round(seconds / 0.25)):
        for peer in (W1, W2, C1):
            talk.say(peer, m.Heartbeat())
        said += talk.pass_time(0.25)
    return said


def test_a_waiting_task_gets_what_another_does_not_begin():
    talk, first, second = talk_with_held_split(2)
    assert talk.say(W2, m.SplitRequest(second, 0, 0, want=1)) == []
    assert _pass(talk, 1.0) == []
    assert _pass(talk, 0.5) == [
        (W1, m.ReturnSplits(first)),
        (W2, m.SplitGrant(second, 0, 0, splits=[(1, (1, 2))])),
    ]
    assert talk.say(W1, m.SplitRequest(first, 0, 0, begin=[1])) == [
        (W1, m.SplitGrant(first, 0, 0, refused=[1]))
    ]
    assert talk.say(W2, m.SplitRequest(second, 0, 0, begin=[1], want=1)) == [
        (W2, m.SplitGrant(second, 0, 0, begun=[1])),
        (W2, m.SplitGrant(second, 0, 0, end=True)),
    ]


def test_a_split_that_is_begun_in_time_is_kept():
    talk, first, second = talk_with_held_split(3)
    talk.say(W2, m.SplitRequest(second, 0, 0, want=1))
    talk.say(W2, m.SplitRequest(second, 0, 0, begin=[2], want=1))
    for _ in range(5):
        assert _pass(talk, 0.75) == []
        talk.say(W1, m.SplitRequest(first, 0, 0, begin=[1]))
    assert talk.logic.assigner.waiting == []


def test_a_task_that_waits_for_itself_keeps_its_splits():
    talk, first, _ = talk_with_held_split(2)
    talk.say(W1, m.SplitRequest(first, 0, 0, want=1))
    assert _pass(talk, 5.0) == []


def test_without_a_waiting_task_nothing_is_taken_back():
    talk, _, _ = talk_with_held_split(2)
    assert _pass(talk, 5.0) == []
