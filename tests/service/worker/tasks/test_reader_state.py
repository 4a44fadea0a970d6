"""One client that reads one task: frames, credit, unconsumed chunks."""

import pytest

from stoker.errors import ErrorRecord
from stoker.service.chunk import Chunk
from stoker.service.worker.tasks.reader_state import ReaderState
from stoker.wire.frames import Credit, Frame

ERROR = ErrorRecord("UserFunctionError", "no")


@pytest.fixture
def reader() -> ReaderState:
    """Return a state after three frames: two elements, an error, three elements."""
    reader = ReaderState(client_id=5, max_bytes=1000)
    reader.connect(1, attempt=1, next_frame=0)
    reader.credit(Credit(0, 10, 100))
    reader.send(Chunk(["a", "b"], 20))
    reader.send(Chunk([], 5, ERROR))
    reader.send(Chunk(["c", "d", "e"], 30))
    return reader


def _backlog(reader: ReaderState) -> list[object]:
    return [chunk.error or chunk.elements for chunk in reader.backlog.drain()]


def test_frames_are_numbered_from_zero(reader: ReaderState):
    sent = reader.send(Chunk(["f"], 1))
    assert (sent.number, sent.elements, sent.error) == (3, ["f"], None)
    assert isinstance(sent, Frame)


def test_frame_of_shared_elements_is_marked_shared(reader: ReaderState):
    assert reader.send(Chunk(["f"], 1, shared=True)).shared
    assert not reader.send(Chunk(["g"], 1)).shared


def test_credit_counts_sent_elements_and_kept_bytes(reader: ReaderState):
    assert reader.room == (4, 45)
    reader.credit(Credit(2, 12, 100))
    assert reader.room == (6, 70)
    assert reader.kept_positions == 3


def test_worker_limit_bounds_bytes_below_the_clients_credit():
    reader = ReaderState(client_id=5, max_bytes=60)
    reader.connect(1, attempt=1, next_frame=0)
    reader.credit(Credit(0, 10, 100))
    reader.send(Chunk(["a"], 50))
    assert reader.room == (9, 10)
    reader.send(Chunk(["b"], 50))
    assert reader.room == (8, -40)


def test_frame_is_at_most_a_quarter_of_the_window():
    reader = ReaderState(client_id=5, max_bytes=1000)
    reader.connect(1, attempt=1, next_frame=0)
    reader.credit(Credit(0, 100, 400))
    assert reader.frame_room == (25, 100)
    reader.send(Chunk(list(range(90)), 90))
    assert reader.frame_room == (10, 100)
    reader.credit(Credit(0, 130, 400))  # 90 of them are unconsumed, so the window is 130
    assert reader.frame_room == (32, 100)
    reader.credit(Credit(1, 132, 400))
    assert reader.frame_room == (10, 100)
    reader.credit(Credit(1, 133, 0))
    assert reader.frame_room[1] <= 0


def test_metered_credit_may_be_used_by_one_frame():
    reader = ReaderState(client_id=5, max_bytes=1000)
    reader.metered = True
    reader.connect(1, attempt=1, next_frame=0)
    reader.credit(Credit(0, 8, 400))
    assert reader.frame_room[0] == 8


def test_unused_credit_is_returned_once(reader: ReaderState):
    assert reader.return_credit() == 4
    assert reader.return_credit() == 0
    assert reader.room[0] == 0
    reader.credit(Credit(0, 10, 100))  # crossed the return: no new credit
    assert reader.room[0] == 0
    reader.credit(Credit(0, 11, 100))
    assert reader.room[0] == 1


def test_only_new_credit_clears_an_announcement(reader: ReaderState):
    reader.announced = True
    reader.credit(Credit(1, 10, 100))
    assert reader.announced
    reader.credit(Credit(1, 11, 100))
    assert not reader.announced


def test_new_connection_has_a_backlog_and_no_credit(reader: ReaderState):
    reader.connect(2, attempt=2, next_frame=1)
    assert (reader.connection, reader.next_number, reader.kept_positions) == (2, 1, 2)
    assert reader.room[0] == 0
    assert _backlog(reader) == [ERROR, ["c", "d", "e"]]


def test_frames_lost_twice_keep_their_order(reader: ReaderState):
    reader.connect(2, attempt=2, next_frame=1)
    reader.send(reader.backlog.take(10, 100))
    reader.connect(3, attempt=3, next_frame=1)
    assert _backlog(reader) == [ERROR, ["c", "d", "e"]]


@pytest.mark.parametrize(
    ("consumed", "next_frame", "possible"),
    [(0, 0, True), (0, 3, True), (0, 4, False), (2, 2, True), (2, 1, False), (3, 3, True)],
)
def test_client_can_resume_at_any_kept_frame(
    reader: ReaderState, consumed: int, next_frame: int, possible: bool
):
    reader.credit(Credit(consumed, 10, 100))
    assert reader.can_resume(next_frame) is possible


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
def test_unconsumed_chunks_are_given_back(
    reader: ReaderState, frame: int, taken: int, rest: list[object]
):
    given = reader.give_back(frame, taken)
    assert [chunk.error or chunk.elements for chunk in given] == rest
    assert reader.kept_positions == 0


def test_backlog_is_given_back_too(reader: ReaderState):
    reader.connect(2, attempt=2, next_frame=2)
    given = reader.give_back(1, 1)
    assert [chunk.elements for chunk in given] == [["c", "d", "e"]]
