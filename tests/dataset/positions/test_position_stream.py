"""A stream of positions: waiting, closing, errors and several streams of batches."""

import dataclasses
import itertools
import logging
import queue
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import stoker
from stoker import Dataset
from stoker.compat import tf
from stoker.dataset.nodes.take import _TakeStream
from stoker.dataset.positions import first_epoch
from stoker.dataset.positions.position_stream import PositionStream, open_positions
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.streams.source import IndexStream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, IndexSource, number
from stoker.elements.spec import Spec, UnknownSpec
from stoker.errors import FailedPreconditionError
from tests.dataset.positions.counted_trees import context_of

MOST = 1 << 20


class Wanted:
    """Turns that a test asks for; `close` ends them."""

    def __init__(self) -> None:
        self.turns: queue.SimpleQueue[range | None] = queue.SimpleQueue()

    def ask(self, *turns: range) -> None:
        for turn in turns:
            self.turns.put(turn)

    def close(self) -> None:
        self.turns.put(None)

    def __iter__(self) -> "Wanted":
        return self

    def __next__(self) -> range:
        turn = self.turns.get(timeout=20)
        if turn is None:
            raise StopIteration
        return turn


def opened(dataset: Dataset, turns: Any, **context: Any) -> PositionStream:
    whole = replace(Context(seed=3, make_dataset=Dataset), **context)
    return open_positions(dataset.node, whole, iter(turns))


def read(dataset: Dataset, turns: Any, **context: Any) -> list[tuple[int, Any]]:
    """The elements with their positions."""
    stream = opened(dataset, turns, **context)
    found: list[tuple[int, Any]] = []
    try:
        while True:
            positions, elements = stream.next_chunk(100, MOST)
            if not positions:
                return found
            found += zip(positions, elements, strict=True)
    finally:
        stream.close()


PARALLEL = [
    lambda d: d,
    lambda d: d.prefetch(3),
    lambda d: d.map(lambda x: x, num_parallel_calls=2),
    lambda d: d.map(lambda x: x, num_parallel_calls=stoker.AUTOTUNE).prefetch(stoker.AUTOTUNE),
]


@pytest.mark.parametrize("later", PARALLEL)
def test_a_turn_is_yielded_without_the_next(later):
    wanted = Wanted()
    stream = opened(later(Dataset.range(100).map(lambda x: 2 * x)), wanted)
    for turn in (range(40, 44), range(1, 30, 7), range(2, 3)):
        wanted.ask(turn)
        left = turn
        while left:
            positions, elements = stream.next_chunk(100, MOST)
            assert elements == [2 * k for k in positions]
            assert positions == left[: len(positions)]
            left = left[len(positions) :]
    wanted.close()
    assert stream.next_chunk(1, MOST) == (range(0), [])
    stream.close()


@pytest.mark.parametrize("later", PARALLEL)
@pytest.mark.parametrize("calls", [None, 2, stoker.AUTOTUNE])
def test_a_short_last_batch_is_yielded_without_the_next_turn(later, calls):
    wanted = Wanted()
    stream = opened(later(Dataset.range(10).map(lambda x: x, calls).batch(4)), wanted)
    wanted.ask(range(2, 3))
    [batch] = stream.next_chunk(5, MOST)[1]
    assert batch.tolist() == [8, 9]
    wanted.ask(range(3))
    found: list[Any] = []
    while len(found) < 3:
        found += stream.next_chunk(5, MOST)[1]
    assert [batch.tolist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    wanted.close()
    assert stream.next_chunk(5, MOST)[1] == []
    stream.close()


def test_batches_of_rows_go_to_the_memory_of_the_caller():
    allocated = []

    def allocate(shape, dtype):
        allocated.append(shape)
        return np.empty(shape, dtype)

    dataset = Dataset.from_tensor_slices(np.arange(20)).shuffle(4).skip(1).batch(3).prefetch(1)
    found = read(dataset, [range(0, 6, 2)], allocate=allocate)
    assert [position for position, _ in found] == [0, 2, 4]
    assert allocated == [(3,)] * 3


@pytest.mark.parametrize("later", PARALLEL)
def test_close_ends_a_read_of_another_thread(later):
    wanted = Wanted()
    stream = opened(later(Dataset.range(100).map(lambda x: x)), wanted)
    outcome: list[Any] = []

    def read_once() -> None:
        try:
            outcome.append(stream.next_chunk(1, MOST))
        except FailedPreconditionError as error:
            outcome.append(error)

    thread = threading.Thread(target=read_once)
    thread.start()
    stream.close()
    wanted.close()
    thread.join(20)
    assert not thread.is_alive()
    [found] = outcome
    assert isinstance(found, FailedPreconditionError) or found == (range(0), [])
    stream.close()


def fail_at_multiples_of_5(x):
    if x % 5 == 0:
        raise ValueError(x)
    return x


@pytest.mark.parametrize("calls", [None, 2])
def test_an_error_has_its_position_and_the_number_of_its_element(calls):
    dataset = Dataset.range(100).skip(3).map(fail_at_multiples_of_5, calls).map(abs)
    stream = opened(dataset, [range(40, 43), range(5, 0, -1)[::-1]])
    found: list[Any] = []
    while True:
        try:
            positions, elements = stream.next_chunk(10, MOST)
        except ValueError as error:
            origin = failure_origin(error)
            assert origin is not None
            found.append((stream.position, error.args[0], origin.index))
            continue
        if not positions:
            break
        found += zip(positions, elements, strict=True)
    assert found == [(40, 43), (41, 44), (42, 45, 42), (1, 4), (2, 5, 2), (3, 6), (4, 7), (5, 8)]
    stream.close()


def test_batches_that_cannot_be_stacked_are_numbered_in_the_whole_epoch():
    dataset = Dataset.range(12).map(lambda x: np.zeros(1 + x % 8 // 7)).batch(2)
    stream = opened(dataset, [range(5, 6), range(3, 4)])
    assert stream.next_chunk(9, MOST)[0] == range(5, 6)
    with pytest.raises(stoker.errors.InvalidArgumentError) as caught:
        stream.next_chunk(9, MOST)
    origin = failure_origin(caught.value)
    assert origin is not None
    assert (stream.position, origin.index) == (3, 3)
    stream.close()


def draw_globally(x):
    import random

    return x, random.random(), float(np.random.rand())  # noqa: NPY002


@pytest.mark.parametrize("calls", [None, 3])
def test_global_generators_are_seeded_by_the_position_in_the_whole(calls):
    dataset = Dataset.range(30).map(draw_globally).shuffle(8, seed=1).map(draw_globally_too, calls)
    context = {"seed_globals": True, "epoch": (4,)}
    numbers = number(dataset.node)
    whole = open_stream(dataset.node, replace(Context(seed=3, numbers=numbers), **context))
    expected = list(itertools.chain.from_iterable(iter(lambda: whole.next_chunk(99, MOST), [])))
    whole.close()
    found = read(dataset, [range(20, 30), range(0, 20, 3), range(1, 3)], **context)
    assert len(found) == 19
    assert all(element == expected[position] for position, element in found)


def draw_globally_too(*element):
    return element, draw_globally(0)


class _Shrunk(IndexSource, frozen=True, eq=False, kw_only=True):
    """A source of 10 elements that has lost most."""

    def element_spec(self) -> Spec:
        return UnknownSpec()

    def cardinality(self) -> int:
        return 10

    def open(self, context: Context) -> Stream:
        numbers = IndexStream(context, self, 10, 8, lambda start, stop: list(range(start, stop)))
        return _TakeStream(numbers, 2)


def test_a_source_that_has_become_shorter_is_an_error_at_each_position():
    stream = opened(Dataset(_Shrunk()).map(abs).batch(1), [range(1, 4)])
    assert stream.next_chunk(1, MOST)[0] == range(1, 2)
    assert stream.next_chunk(1, MOST)[0] == range(2, 3)
    with pytest.raises(FailedPreconditionError, match="ended before position 3"):
        stream.next_chunk(1, MOST)
    assert stream.position == 3
    assert stream.next_chunk(1, MOST) == (range(0), [])
    stream.close()


def test_a_cache_warns_once_and_keeps_nothing(caplog):
    first_epoch._warned.clear()
    called: list[int] = []

    def note(x):
        called.append(x)
        return x

    dataset = Dataset.range(4).map(note).cache()
    with caplog.at_level(logging.WARNING, "stoker.dataset"):
        for _ in range(2):
            assert read(dataset, [range(4)]) == [(k, k) for k in range(4)]
    assert called == [0, 1, 2, 3] * 2
    [record] = caplog.records
    assert "`cache` (tests/dataset/positions/test_position_stream.py:" in record.message


def draw(x):
    return int(x), int(stoker.random.generator().integers(1 << 30))


@pytest.mark.parametrize("calls", [None, 2])
def test_a_position_that_is_asked_again_has_the_same_draws(calls):
    dataset = Dataset.range(9).map(draw, calls).shuffle(4, seed=1).map(lambda x, y: (x, y), calls)
    found = read(dataset, [range(3, 4)] * 3 + [range(9)])
    assert len({element for position, element in found if position == 3}) == 1
    assert len({drawn for _, (_, drawn) in found}) == 9


@dataclasses.dataclass
class Pair:
    first: int
    second: str


def test_loaded_elements_have_the_classes_of_the_spec(tmp_path):
    path = tmp_path / "pairs"
    Dataset.range(5).map(lambda x: Pair(int(x), str(x))).save(path)
    spec = Pair(stoker.TensorSpec((), np.int64), stoker.TensorSpec((), str))  # type: ignore[arg-type]
    dataset = Dataset.load(path, element_spec=spec)
    assert read(dataset, [range(1, 4, 2)]) == [(1, Pair(1, "1")), (3, Pair(3, "3"))]
    assert list(dataset)[3] == Pair(3, "3")


def test_a_yielded_element_is_not_kept_while_the_next_turn_is_awaited():
    wanted = Wanted()
    stream = opened(Dataset.range(10).map(lambda x: np.full(9, x)), wanted)
    wanted.ask(range(2))
    for _ in range(2):
        [element] = stream.next_chunk(1, MOST)[1]
    kept = weakref.ref(element)
    reader = threading.Thread(target=lambda: stream.next_chunk(1, MOST))
    reader.start()
    del element
    assert kept() is None
    wanted.close()
    reader.join(20)
    stream.close()


def test_moved_shuffles_keep_their_salts():
    dataset = tf.data.Dataset.range(40).shuffle(9).map(abs).shuffle(20).skip(3).map(abs).shuffle(8)
    context = context_of(dataset, 2)
    assert len(set(context.salts.values())) == 3
    stream = open_positions(dataset.node, context, iter([range(20, 37), range(20)]))
    found: dict[int, Any] = {}
    while len(found) < 37:
        found |= dict(zip(*stream.next_chunk(50, MOST), strict=True))
    stream.close()
    assert [found[k] for k in range(37)] == list(dataset.iterator(epoch=2))
