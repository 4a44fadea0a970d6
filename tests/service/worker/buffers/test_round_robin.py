"""The buffer of coordinated reads: runs, dealt to consumers by their index."""

import pytest

from stoker.errors import ErrorRecord, InvalidArgumentError
from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.round_robin import END_OF_SEQUENCE, RUNS_AHEAD, RoundRobin

ANN, BOB, CAT = 41, 42, 43


def _buffer(*elements, clients=(ANN, BOB), **options):
    buffer = RoundRobin(2, **options)
    for index, client in enumerate(clients):
        assert buffer.join(client, "", index, 0) == 0
    buffer.put(Chunk(list(elements), 10 * len(elements)))
    return buffer


def _take(buffer, client):
    """Return all that a client can take."""
    return [buffer.take(client, 10, 1000) for _ in range(buffer.waiting(client))]


def test_each_consumer_gets_its_element_of_each_run():
    buffer = _buffer(0, 1, 2, 3, 4)
    assert (buffer.undelivered, buffer.nbytes) == (5, 50)
    assert _take(buffer, ANN) == [Chunk([0], 10), Chunk([2], 10)]
    assert _take(buffer, BOB) == [Chunk([1], 10), Chunk([3], 10)]
    assert buffer.undelivered == 1  # the beginning of a run, which nobody gets before its end
    buffer.put(Chunk([5], 10))
    assert _take(buffer, ANN) == [Chunk([4], 10)]


def test_an_error_takes_the_place_of_its_element():
    error = ErrorRecord("UserFunctionError", "no")
    buffer = _buffer(0)
    buffer.put(Chunk([], 5, error))
    assert _take(buffer, BOB) == [Chunk([], 5, error)]


def test_a_client_without_a_valid_index_is_refused():
    for index in (None, 2):
        with pytest.raises(InvalidArgumentError, match=r"must be in \[0, 2\)"):
            RoundRobin(2).join(ANN, "", index, 0)


def test_room_is_bounded_in_bytes_and_runs():
    assert not _buffer(0, 1).has_room(20)
    assert _buffer(0, 1).has_room(21)
    assert not _buffer(*range(2 * RUNS_AHEAD)).has_room(10**9)


def test_the_first_run_is_computed_whatever_its_size():
    assert _buffer(0).has_room(1)
    assert not _buffer(0).has_room(0)  # without a reader
    assert _buffer().has_room(0)


def test_an_incomplete_run_at_the_end_is_dropped():
    buffer = _buffer(0, 1, 2, finite_coordinated=True)
    buffer.finish(cut=False)
    assert [_take(buffer, x) for x in (ANN, BOB)] == [[Chunk([0], 10)], [Chunk([1], 10)]]
    assert not buffer.undelivered


def test_an_end_that_is_not_allowed_is_an_error_for_all():
    buffer = _buffer(0, 1, 2)
    buffer.finish(cut=False)
    for client in (ANN, BOB):
        error = _take(buffer, client)[-1].error
        assert error is not None
        assert (error.code, error.message) == ("FailedPreconditionError", END_OF_SEQUENCE)


def test_a_worker_that_stops_is_no_end_of_the_data():
    buffer = _buffer(0, 1)
    buffer.finish(cut=True)
    assert _take(buffer, ANN) == [Chunk([0], 10)]


def test_a_successor_gets_what_was_sent_and_not_consumed():
    buffer = _buffer(*range(6))
    sent = _take(buffer, ANN)
    buffer.give_back(ANN, sent[1:])
    assert buffer.join(CAT, "", 0, 0) == 1
    assert _take(buffer, CAT) == [Chunk([2], 10), Chunk([4], 10)]


def test_a_successor_skips_to_the_round_of_the_others():
    buffer = _buffer(*range(6), clients=(ANN,))
    assert buffer.join(BOB, "", 1, 2) == 2
    assert _take(buffer, BOB) == [Chunk([5], 10)]
    assert buffer.skip(ANN, 1) == 1
    assert _take(buffer, ANN) == [Chunk([2], 10), Chunk([4], 10)]


def test_runs_that_are_not_dealt_yet_can_be_skipped():
    buffer = _buffer(0, 1)
    assert buffer.skip(ANN, 2) == 2
    buffer.put(Chunk([2, 3, 4, 5], 40))
    assert _take(buffer, ANN) == [Chunk([4], 10)]


def test_an_absent_consumer_stops_nobody_and_keeps_the_last_round():
    buffer = _buffer(*range(8))
    buffer.give_back(BOB, [])
    assert buffer.undelivered == 4  # of the other one
    _take(buffer, ANN)
    buffer.consumed(ANN, 3)
    assert buffer.has_room(21)
    assert buffer.join(CAT, "", 1, 0) == 2
    assert _take(buffer, CAT) == [Chunk([5], 10), Chunk([7], 10)]


def test_all_are_kept_while_no_consumer_is_there():
    buffer = _buffer(*range(4))
    for client in (ANN, BOB):
        buffer.give_back(client, [])
    assert buffer.undelivered == 4
    assert buffer.join(CAT, "", 1, 0) == 0


def test_a_consumer_that_has_left_before_it_came_is_absent():
    for buffer in (_buffer(*range(4), clients=(ANN,)), _buffer(clients=(ANN,), absent=[1])):
        buffer.release(BOB, 1)
        _take(buffer, ANN)
        buffer.consumed(ANN, 2)
        assert not buffer.undelivered
