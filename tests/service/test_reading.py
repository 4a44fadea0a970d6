"""One client's reading of one task: frames, credit, and what is kept until consumed."""

import pytest

from stoker.errors import ErrorRecord
from stoker.service.chunk import Chunk
from stoker.service.worker.reading import Reading
from stoker.wire.frames import Credit, Frame

ERROR = ErrorRecord("UserFunctionError", "no")


@pytest.fixture
def reading() -> Reading:
    """Three frames were sent: two elements, an error, three elements."""
    reading = Reading(client_id=5, max_bytes=1000)
    reading.connect(1, attempt=1, next_frame=0)
    reading.credit(Credit(0, 10, 100))
    reading.send(Chunk(["a", "b"], 20))
    reading.send(Chunk([], 5, ERROR))
    reading.send(Chunk(["c", "d", "e"], 30))
    return reading


def _backlog(reading: Reading) -> list[object]:
    return [chunk.error or chunk.elements for chunk in reading.backlog.drain()]


def test_frames_are_numbered_from_zero(reading: Reading):
    sent = reading.send(Chunk(["f"], 1))
    assert (sent.number, sent.elements, sent.error) == (3, ["f"], None)
    assert isinstance(sent, Frame)


def test_a_frame_of_shared_elements_says_so(reading: Reading):
    assert reading.send(Chunk(["f"], 1, shared=True)).shared
    assert not reading.send(Chunk(["g"], 1)).shared


def test_credit_counts_what_was_sent_and_bytes_what_is_kept(reading: Reading):
    assert reading.room == (4, 45)
    reading.credit(Credit(2, 12, 100))
    assert reading.room == (6, 70)
    assert reading.kept_positions == 3


def test_the_worker_keeps_no_more_than_it_may_whatever_the_client_would_take():
    reading = Reading(client_id=5, max_bytes=60)
    reading.connect(1, attempt=1, next_frame=0)
    reading.credit(Credit(0, 10, 100))
    reading.send(Chunk(["a"], 50))
    assert reading.room == (9, 10)
    reading.send(Chunk(["b"], 50))
    assert reading.room == (8, -40)


def test_a_frame_is_a_quarter_of_the_window_so_that_the_next_is_there_when_one_is_used_up():
    reading = Reading(client_id=5, max_bytes=1000)
    reading.connect(1, attempt=1, next_frame=0)
    reading.credit(Credit(0, 100, 400))
    assert reading.frame_room == (25, 100)
    reading.send(Chunk(list(range(90)), 90))
    assert reading.frame_room == (10, 100)
    reading.credit(Credit(0, 130, 400))  # 90 of them are held, so the window is 130
    assert reading.frame_room == (32, 100)
    reading.credit(Credit(1, 132, 400))
    assert reading.frame_room == (10, 100)
    reading.credit(Credit(1, 133, 0))
    assert reading.frame_room[1] <= 0


def test_metered_credit_may_be_used_in_one_frame():
    reading = Reading(client_id=5, max_bytes=1000)
    reading.metered = True
    reading.connect(1, attempt=1, next_frame=0)
    reading.credit(Credit(0, 8, 400))
    assert reading.frame_room[0] == 8


def test_credit_that_is_not_used_can_be_returned_once(reading: Reading):
    assert reading.return_credit() == 4
    assert reading.return_credit() == 0
    assert reading.room[0] == 0
    reading.credit(Credit(0, 10, 100))  # crossed the return: no new credit
    assert reading.room[0] == 0
    reading.credit(Credit(0, 11, 100))
    assert reading.room[0] == 1


def test_only_new_credit_answers_an_announcement(reading: Reading):
    reading.announced = True
    reading.credit(Credit(1, 10, 100))
    assert reading.announced
    reading.credit(Credit(1, 11, 100))
    assert not reading.announced


def test_a_new_connection_begins_without_credit_and_with_what_did_not_arrive(reading: Reading):
    reading.connect(2, attempt=2, next_frame=1)
    assert (reading.connection, reading.next_number, reading.kept_positions) == (2, 1, 2)
    assert reading.room[0] == 0
    assert _backlog(reading) == [ERROR, ["c", "d", "e"]]


def test_what_did_not_arrive_twice_keeps_its_order(reading: Reading):
    reading.connect(2, attempt=2, next_frame=1)
    reading.send(reading.backlog.take(10, 100))
    reading.connect(3, attempt=3, next_frame=1)
    assert _backlog(reading) == [ERROR, ["c", "d", "e"]]


@pytest.mark.parametrize(
    ("consumed", "next_frame", "possible"),
    [(0, 0, True), (0, 3, True), (0, 4, False), (2, 2, True), (2, 1, False), (3, 3, True)],
)
def test_a_client_can_resume_at_any_frame_that_is_kept(
    reading: Reading, consumed: int, next_frame: int, possible: bool
):
    reading.credit(Credit(consumed, 10, 100))
    assert reading.can_resume(next_frame) is possible


@pytest.mark.parametrize(
    ("frame", "taken", "rest"),
    [
        (0, 0, [["a", "b"], ERROR, ["c", "d", "e"]]),
        (0, 1, [["b"], ERROR, ["c", "d", "e"]]),
        (0, 2, [ERROR, ["c", "d", "e"]]),
        (1, 1, [["c", "d", "e"]]),
        (2, 2, [["e"]]),
        (3, 0, []),
    ],
)
def test_what_the_user_did_not_take_is_given_back(
    reading: Reading, frame: int, taken: int, rest: list[object]
):
    given = reading.give_back(frame, taken)
    assert [chunk.error or chunk.elements for chunk in given] == rest
    assert reading.kept_positions == 0


def test_what_is_to_be_sent_again_is_given_back_too(reading: Reading):
    reading.connect(2, attempt=2, next_frame=2)
    given = reading.give_back(1, 1)
    assert [chunk.elements for chunk in given] == [["c", "d", "e"]]
