"""The cross-trainer cache of a task: the elements that each trainer gets, and what is kept."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import ErrorRecord
from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.sliding_window import PIECE_BYTES, SlidingWindow

ANN, BOB, ANN_TOO = 41, 42, 43
SIZE = 32
"""Size of an int."""

ROOM_FOR_TWO = 2 * (SIZE + PIECE_BYTES)
"""Size of a cache that keeps two ints which were taken one by one."""


def _window(count: int = 0, cache_bytes: int = 1 << 20) -> SlidingWindow:
    """Return a window with elements from 0 on, and the trainers of Ann and Bob."""
    window = SlidingWindow(cache_bytes)
    window.join(ANN, "ann", None)
    window.join(BOB, "bob", None)
    window.put(Chunk(list(range(count)), SIZE * count))
    return window


def _take(window: SlidingWindow, client_id: int, count: int) -> list[int]:
    """Return the next `count` elements, taken one by one."""
    return [window.take(client_id, 1, 1000).elements[0] for _ in range(count)]


def test_each_trainer_gets_each_element():
    window = _window(4)
    assert _take(window, ANN, 4) == _take(window, BOB, 4) == [0, 1, 2, 3]
    assert window.waiting(ANN) == window.waiting(BOB) == 0


def test_chunks_are_shared_and_of_any_size():
    window = _window(4)
    assert window.take(ANN, 3, 1000) == Chunk([0, 1, 2], 3 * SIZE, shared=True, position=0)
    assert window.take(BOB, 2, 1000) == Chunk([0, 1], 2 * SIZE, shared=True, position=0)
    assert window.take(BOB, 9, 1000) == Chunk([2], SIZE, shared=True, position=2)
    assert window.take(BOB, 9, 1000) == Chunk([3], SIZE, shared=True, position=3)
    assert window.take(ANN, 9, 1000) == Chunk([3], SIZE, shared=True, position=3)


def test_small_chunks_are_read_as_one():
    window = _window(4)
    _take(window, ANN, 4)
    assert window.take(BOB, 9, 80) == Chunk([0, 1], 2 * SIZE, shared=True, position=0)


def test_clients_of_one_trainer_share_its_elements():
    window = _window(4)
    window.join(ANN_TOO, "ann", None)
    assert _take(window, ANN, 1) + _take(window, ANN_TOO, 2) + _take(window, ANN, 1) == [0, 1, 2, 3]
    assert _take(window, BOB, 4) == [0, 1, 2, 3]


def test_a_slow_trainer_skips_to_the_oldest_kept_element():
    window = _window(6, ROOM_FOR_TWO)
    assert _take(window, BOB, 1) == [0]
    assert _take(window, ANN, 5) == [0, 1, 2, 3, 4]
    assert window.nbytes == ROOM_FOR_TWO + SIZE
    assert window.waiting(BOB) == 3
    assert _take(window, BOB, 3) == [3, 4, 5]
    assert window.counts(BOB) == {"cache_hits": 2, "cache_misses": 2, "elements_skipped": 2}
    assert window.counts(ANN) == {"cache_hits": 1, "cache_misses": 4, "elements_skipped": 0}


def test_what_no_trainer_was_sent_never_leaves():
    """However small the cache, and whoever has joined without a read."""
    window = _window(0, ROOM_FOR_TWO)
    for first in range(0, 100, 10):
        window.put(Chunk(list(range(first, first + 10)), 10 * SIZE))
    window.join(44, "eve", None)
    assert _take(window, ANN, 50) == list(range(50))
    assert _take(window, BOB, 52) == list(range(48, 100))
    assert _take(window, ANN, 2) == [98, 99]
    assert [window.counts(x)["elements_skipped"] for x in (ANN, BOB)] == [48, 48]


def test_a_new_trainer_begins_at_the_oldest_kept_element():
    window = _window(5, ROOM_FOR_TWO)
    _take(window, ANN, 5)
    window.join(44, "eve", None)
    assert _take(window, 44, 2) == [3, 4]
    assert window.counts(44)["elements_skipped"] == 0


def test_elements_given_back_are_for_their_trainer_alone():
    window = _window(6)
    first = window.take(ANN, 4, 1000)
    window.give_back(ANN, [first.after(1)])
    window.join(ANN_TOO, "ann", None)
    assert window.waiting(ANN_TOO) == 5
    assert _take(window, ANN_TOO, 5) == [1, 2, 3, 4, 5]
    assert _take(window, BOB, 6) == [0, 1, 2, 3, 4, 5]


def test_elements_given_back_leave_the_window_too():
    window = _window(6, ROOM_FOR_TWO)
    window.give_back(ANN, [window.take(ANN, 1, 1000), window.take(ANN, 1, 1000)])
    assert _take(window, BOB, 3) == [0, 1, 2]
    window.join(ANN_TOO, "ann", None)
    assert _take(window, ANN_TOO, 3) == [1, 2, 3]
    assert window.counts(ANN_TOO)["elements_skipped"] == 0  # it did not read meanwhile


def test_elements_of_a_lost_client_are_lost_for_its_trainer():
    window = _window(4)
    window.join(ANN_TOO, "ann", None)
    assert window.lose(ANN, [window.take(ANN, 2, 1000)]) == 0
    assert _take(window, ANN_TOO, 2) == [2, 3]
    assert window.counts(ANN_TOO)["elements_lost"] == 2
    assert _take(window, BOB, 4) == [0, 1, 2, 3]
    assert "elements_lost" not in window.counts(BOB)


def test_errors_keep_their_positions():
    error = ErrorRecord("UserFunctionError", "no")
    window = _window(1)
    window.put(Chunk([], 5, error))
    window.put(Chunk([2], SIZE))
    found = [window.take(client, 9, 1000) for client in (ANN, ANN, ANN, BOB, BOB, BOB)]
    shown = [(x.elements, x.error, x.position, x.shared) for x in found]
    assert shown[:3] == [([0], None, 0, True), ([], error, 1, True), ([2], None, 2, True)]
    assert shown[3:] == shown[:3]


def test_an_element_larger_than_the_cache_is_an_error():
    window = _window(0, 1000)
    window.put(Chunk([b"a", b"b" * 2000, b"c"], 2100))
    assert window.take(ANN, 1, 1000).elements == [b"a"]
    error = window.take(ANN, 9, 1000).error
    assert error is not None
    assert error.message.startswith(
        "tf.data service element size is larger than cache size in bytes. Got element size: 2032 "
        "and cache size: 1000. "
    )
    assert window.take(ANN, 9, 1000).elements == [b"c"]


def test_the_end_of_the_data_is_an_error_for_each_trainer():
    window = _window(1)
    window.finish(cut=False)
    for client in (ANN, BOB):
        assert window.take(client, 9, 1000).elements == [0]
        error = window.take(client, 9, 1000).error
        assert error is not None
        assert error.message.startswith(
            "Cross-trainer caching requires the input dataset to be infinite. However, it reached "
            "the end of sequence. "
        )


def test_a_worker_that_stops_adds_no_error():
    window = _window(1)
    window.finish(cut=True)
    assert window.undelivered == 1
    assert _take(window, ANN, 1) == _take(window, BOB, 1) == [0]
    assert window.undelivered == 0


def test_only_what_no_trainer_was_sent_is_ahead():
    window = _window(10)
    assert not window.has_room(10 * SIZE)
    _take(window, ANN, 1)
    assert window.has_room(10 * SIZE)
    assert not window.has_room(0)
    _take(window, ANN, 9)
    assert window.has_room(0)


def test_trainers_that_left_are_forgotten():
    window = _window(0, ROOM_FOR_TWO)
    for number in range(100):
        window.put(Chunk([number], SIZE))
        window.join(100 + number, f"trainer {number}", None)
        window.give_back(100 + number, [window.take(100 + number, 1, 1000)])
        _take(window, ANN, 1)
    assert len(window._trainers) < 10


_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "take", "take", "take", "back", "lose", "join"]),
        st.integers(0, 5),
        st.integers(1, 9),
    ),
    max_size=200,
)


@settings(deadline=None)
@given(_OPERATIONS, st.integers(SIZE, 5 * (SIZE + PIECE_BYTES)))
def test_no_trainer_gets_an_element_twice_or_out_of_order(operations, cache_bytes):
    """Six clients of three trainers; those that left join again under another id."""
    window = SlidingWindow(cache_bytes)
    computed = 0
    consumed: dict[str, list[int]] = {"ann": [], "bob": [], "eve": []}
    kept: dict[int, list[Chunk]] = {}
    ids = dict(enumerate(range(6)))
    skipped = dict.fromkeys(consumed, 0)
    for what, who, count in operations:
        client_id, trainer = ids[who], ["ann", "bob", "eve"][who % 3]
        if what == "put":
            window.put(Chunk(list(range(computed, computed + count)), SIZE * count))
            computed += count
        elif what == "join" and client_id not in kept:
            window.join(client_id, trainer, None)
            kept[client_id] = []
        elif client_id not in kept:
            continue
        elif what == "take" and (waiting := window.waiting(client_id)):
            before = window.counts(client_id)
            chunk = window.take(client_id, count, 1000)
            after = window.counts(client_id)
            assert 1 <= chunk.positions <= min(count, waiting)
            assert window.waiting(client_id) == waiting - chunk.positions
            assert chunk.elements == list(range(chunk.position or 0, chunk.end or 0))
            skipped[trainer] += after["elements_skipped"] - before["elements_skipped"]
            kept[client_id].append(chunk)
        elif what in ("back", "lose"):
            chunks = kept.pop(client_id)
            mine = [x for chunk in chunks for x in chunk.elements]
            if what == "back":
                half = len(chunks) // 2
                mine = [x for chunk in chunks[:half] for x in chunk.elements]
                window.give_back(client_id, chunks[half:])
            else:
                window.lose(client_id, chunks)
            consumed[trainer] += mine
            ids[who] = client_id + 6
        assert window._window.nbytes <= cache_bytes
        assert window.nbytes - window._window.nbytes == SIZE * window._ahead.positions
    for client_id, chunks in kept.items():
        mine = [x for chunk in chunks for x in chunk.elements]
        consumed[["ann", "bob", "eve"][client_id % 3]] += mine
    for trainer, elements in consumed.items():
        assert len(set(elements)) == len(elements)
        assert len(elements) + skipped[trainer] <= computed


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=200), st.integers(SIZE, 2000))
def test_what_a_reading_trainer_misses_is_counted(operations, cache_bytes):
    window = _window(0, cache_bytes)
    window.put(Chunk(list(range(2000)), 2000 * SIZE))
    got: dict[int, list[int]] = {ANN: [], BOB: []}
    for is_ann, count in operations:
        client_id = ANN if is_ann else BOB
        got[client_id] += window.take(client_id, count, 1000).elements
    for client_id, elements in got.items():
        assert elements == sorted(set(elements))
        counts = window.counts(client_id)
        assert counts["cache_hits"] + counts["cache_misses"] == len(elements)
        assert counts["elements_skipped"] == (elements[-1] + 1 if elements else 0) - len(elements)
