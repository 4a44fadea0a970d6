"""Turns of a pipeline: asked for one by one, read again after the end of a stream."""

import threading

from stoker.service.worker.pipelines.turn_source import TurnSource
from tests.serving import eventually


class _Asked:
    """A worker that has some turns, and counts the questions."""

    def __init__(self, *turns: range) -> None:
        self.asked = 0
        self.turns = list(turns)
        self.source = TurnSource(self.need)

    def need(self) -> None:
        self.asked += 1
        if self.turns:
            self.source.give(self.turns.pop(0))


def test_a_turn_is_asked_for_when_the_stream_needs_it():
    worker = _Asked(range(3), range(9, 12))
    turns = worker.source.open()
    assert worker.asked == 0
    assert next(turns) == range(3)
    assert worker.asked == 1
    assert next(turns) == range(9, 12)
    assert worker.asked == 2


def test_next_position_follows_what_is_delivered():
    worker = _Asked(range(3), range(9, 12, 2))
    assert worker.source.next_position is None
    turns = worker.source.open()
    next(turns)
    next(turns)
    found: list[int] = []
    while (position := worker.source.next_position) is not None:
        found.append(position)
        worker.source.delivered(1)
    assert found == [0, 1, 2, 9, 11]


def test_a_new_stream_reads_what_was_not_delivered():
    worker = _Asked(range(3), range(9, 12), range(20, 21), range(30, 31))
    turns = worker.source.open()
    for _ in range(3):
        next(turns)
    worker.source.delivered(3)
    worker.source.delivered(1)
    again = worker.source.open()
    assert list(turns) == []
    assert [next(again) for _ in range(3)] == [range(10, 12), range(20, 21), range(30, 31)]
    assert worker.asked == 4


def test_an_answer_after_the_end_of_a_stream_is_for_the_next():
    worker = _Asked()
    found: list[list[range]] = []
    old = worker.source.open()
    reading = threading.Thread(target=lambda: found.append(list(old)))
    reading.start()
    assert eventually(lambda: worker.asked == 1)
    turns = worker.source.open()
    reading.join(5)
    assert found == [[]]
    worker.source.give(range(4))
    assert next(turns) == range(4)
    assert worker.asked == 1


def test_a_closed_source_ends_streams_and_asks_no_more():
    worker = _Asked()
    turns = worker.source.open()
    reading = threading.Thread(target=lambda: list(turns))
    reading.start()
    assert eventually(lambda: worker.asked == 1)
    worker.source.close()
    reading.join(5)
    assert not reading.is_alive()
    assert list(worker.source.open()) == []
    assert worker.asked == 1
