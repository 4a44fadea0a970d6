"""What waits for readers: order, sizes, and what comes back."""

import time

from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import ErrorRecord
from stoker.service.worker.buffer import FirstCome, Piece

ERROR = ErrorRecord("UserFunctionError", "no")


def _filled(*pieces: Piece) -> FirstCome:
    buffer = FirstCome()
    for piece in pieces:
        buffer.put(piece)
    return buffer


def test_small_pieces_are_taken_together():
    buffer = _filled(Piece([1], 10), Piece([2, 3], 20))
    assert buffer.take(100, 100) == Piece([1, 2, 3], 30)
    assert (buffer.positions, buffer.nbytes) == (0, 0)


def test_a_large_piece_is_taken_in_parts():
    buffer = _filled(Piece([1, 2, 3, 4], 40))
    assert buffer.take(1, 100) == Piece([1], 10)
    assert buffer.take(100, 25) == Piece([2, 3], 20)
    assert (buffer.positions, buffer.nbytes) == (1, 10)


def test_one_element_is_taken_however_large():
    buffer = _filled(Piece([1, 2], 2000))
    assert buffer.take(10, 1) == Piece([1], 1000)


def test_an_error_comes_alone_and_in_its_place():
    buffer = _filled(Piece([1], 1), Piece([], 5, ERROR), Piece([2], 1))
    taken = [buffer.take(10, 100) for _ in range(3)]
    assert taken == [Piece([1], 1), Piece([], 5, ERROR), Piece([2], 1)]


def test_what_is_given_back_is_taken_first_even_amid_a_piece():
    buffer = _filled(Piece([1, 2, 3], 30))
    first = buffer.take(2, 100)
    buffer.give_back([first, Piece([], 5, ERROR)])
    assert (buffer.positions, buffer.nbytes) == (4, 35)
    assert buffer.take(10, 100) == Piece([1, 2], 20)
    assert buffer.take(10, 100) == Piece([], 5, ERROR)
    assert buffer.take(10, 100) == Piece([3], 10)


def test_an_empty_piece_is_nothing():
    assert _filled(Piece([], 0)).positions == 0


@given(
    st.lists(st.integers(0, 9)),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 60), st.booleans())),
)
def test_order_and_counts_hold_for_any_takes_and_returns(sizes, takes):
    elements = iter(range(1000))
    buffer = _filled(*[Piece([next(elements) for _ in range(n)], 7 * n) for n in sizes])
    got: list[int] = []
    for most, nbytes, back in takes:
        if buffer.positions:
            piece = buffer.take(most, nbytes)
            assert 1 <= len(piece.elements) <= most
            if back:
                buffer.give_back([piece])
            else:
                got += piece.elements
    rest = [x for piece in buffer.drain() for x in piece.elements]
    assert got + rest == list(range(sum(sizes)))
    assert (buffer.positions, buffer.nbytes) == (0, 0)


def test_taking_one_by_one_costs_the_same_for_each():
    def seconds(count: int) -> float:
        buffer = _filled(Piece(list(range(count)), count))
        began = time.perf_counter()
        for _ in range(count):
            buffer.take(1, 1 << 20)
        return time.perf_counter() - began

    # Quadratic would be 256 times as long; the bound leaves room for a busy machine.
    assert seconds(160_000) < 100 * max(seconds(10_000), 0.005)
