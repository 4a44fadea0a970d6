"""interleave."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.threads import pool
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context
from stoker.dataset.tree.splits import Unsplittable
from stoker.dataset.tree.structure import source_summary
from stoker.elements.spec import TensorSpec, UnknownSpec
from stoker.errors import InvalidArgumentError, UnimplementedError
from tests.dataset.splits import ScriptedSplits
from tests.dataset.verbs import check_verbs, opened, positions, tape

CALLS = [None, 1, 2, stoker.AUTOTUNE]


def tens(x: int) -> Dataset:
    return Dataset.range(x * 10, x * 10 + x % 4)


# The results of tf.data 2.21 for range(9).interleave(tens, cycle_length, block_length).
ORDERS = {
    (1, 1): [10, 20, 21, 30, 31, 32, 50, 60, 61, 70, 71, 72],
    (2, 1): [10, 20, 21, 30, 31, 32, 50, 60, 70, 61, 71, 72],
    (3, 1): [10, 20, 30, 21, 31, 32, 50, 60, 61, 70, 71, 72],
    (3, 2): [10, 20, 21, 30, 31, 32, 50, 60, 61, 70, 71, 72],
    (2, 3): [10, 20, 21, 30, 31, 32, 50, 60, 61, 70, 71, 72],
    (4, 2): [10, 20, 21, 30, 31, 50, 32, 60, 61, 70, 71, 72],
    (9, 1): [10, 20, 30, 50, 60, 70, 21, 31, 61, 71, 32, 72],
}


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize(("cycle", "block"), ORDERS)
def test_the_order_is_that_of_tf_data(cycle: int, block: int, calls: int | None) -> None:
    assert list(Dataset.range(9).interleave(tens, cycle, block, calls)) == ORDERS[cycle, block]


def test_by_default_eight_datasets_are_read_round_robin() -> None:
    dataset = Dataset.range(9).interleave(lambda x: Dataset.range(10 * x, 10 * x + 2))
    assert list(dataset) == [0, 10, 20, 30, 40, 50, 60, 70, 1, 11, 21, 31, 41, 51, 61, 71, 80, 81]


def test_autotune_of_the_cycle_is_the_same_on_any_machine() -> None:
    dataset = Dataset.range(20)
    tuned = dataset.interleave(Dataset.range, stoker.AUTOTUNE)
    assert list(tuned) == list(dataset.interleave(Dataset.range, 8))


def test_tuples_are_unpacked() -> None:
    pairs = Dataset.range(3).map(lambda x: (x, 2 * x))
    assert list(pairs.interleave(Dataset.range, 2)) == [1, 2, 3]


def interleaved(datasets: list[list[Any] | None], cycle: int, block: int) -> list[Any]:
    """The order, from its definition; None in place of a list: it could not be made."""
    waiting = iter(datasets)
    slots: list[list[Any] | None] = [None] * cycle
    order: list[Any] = []
    at, exhausted = 0, False
    while not exhausted or any(slot is not None for slot in slots):
        if slots[at] is None and not exhausted:
            made = next(waiting, "end")
            exhausted = made == "end"
            if not exhausted:
                slots[at] = ["failed"] if made is None else list(made)
        slot = slots[at]
        if slot is not None:
            order += slot[:block]
            slots[at] = None if len(slot) < block else slot[block:]
        elif not exhausted:
            continue
        at = (at + 1) % cycle
    return order


def flaky(lengths: list[int], broken: int) -> Callable[[int], Dataset]:
    """Makes a dataset as long as `lengths` says; some cannot be made, some elements fail."""

    def element(value: int) -> int:
        if value % 7 == broken:
            raise ValueError(f"no {value}")
        return value

    def make(x: int) -> Dataset:
        if lengths[x] == 13:
            raise ValueError(f"no dataset {x}")
        return Dataset.range(100 * x, 100 * x + lengths[x]).map(element)

    return make


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize(("cycle", "block"), [(1, 1), (2, 1), (3, 2), (4, 5), (7, 1), (3, 30)])
def test_all_verbs_read_the_same_stream(cycle: int, block: int, calls: int | None) -> None:
    lengths = [3, 0, 13, 1, 40, 2, 13, 13, 0, 9, 25, 5, 1, 60]
    make = flaky(lengths, broken=3)
    found = check_verbs(
        lambda: Dataset.range(len(lengths)).interleave(make, cycle, block, calls), mixes=8
    )
    values: list[list[Any] | None] = [
        None if n == 13 else [100 * x + i for i in range(n)] for x, n in enumerate(lengths)
    ]
    expected = interleaved(values, cycle, block)
    raised = [value == "failed" or value % 7 == 3 for value in expected]
    assert [isinstance(position, tuple) for position in found] == raised
    for position, value in zip(found, expected, strict=True):
        assert isinstance(position, tuple) or position == value


@pytest.mark.parametrize("calls", CALLS)
def test_errors_name_their_place(calls: int | None) -> None:
    def make(x: int) -> Dataset:
        if x == 1:
            raise LookupError("nothing there")
        return Dataset.range(x, x + 2)

    dataset = Dataset.range(3).interleave(make, 2, 1, calls)
    iterator = iter(dataset)
    assert next(iterator) == 0
    with pytest.raises(LookupError, match="nothing there") as caught:
        next(iterator)
    assert failure_origin(caught.value) == ("interleave", dataset.node.site, 1, "1")
    assert list(iterator) == [1, 2, 3]


@pytest.mark.parametrize("calls", CALLS)
def test_an_error_of_the_input_takes_a_position(calls: int | None) -> None:
    broken = Dataset.range(3).map(lambda x: 6 // (x - 1))
    found = tape(broken.interleave(lambda x: Dataset.range(abs(x)).take(2), 2, 1, calls))
    assert [position if isinstance(position, int) else position[1] for position in found] == [
        0, "ZeroDivisionError", 1, 0, 1,
    ]  # fmt: skip


@pytest.mark.parametrize("calls", CALLS)
def test_a_users_stop_iteration_ends_nothing(calls: int | None) -> None:
    def make(x: int) -> Dataset:
        return next(iter(())) if x == 0 else Dataset.range(2)

    found = tape(Dataset.range(2).interleave(make, 2, 1, calls))
    assert found[0][:2] == ("raised", "RuntimeError")
    assert found[1:] == [0, 1]


def test_another_type_than_a_dataset_is_an_error_naming_it() -> None:
    dataset = Dataset.range(1).interleave(lambda x: [x])  # type: ignore[arg-type,return-value,var-annotated]
    with pytest.raises(InvalidArgumentError, match="function of interleave must return a Dataset"):
        next(iter(dataset))


@pytest.mark.parametrize("calls", CALLS)
def test_advance_skips_long_datasets_without_reading_them(calls: int | None) -> None:
    called: list[int] = []

    def note(value: int) -> int:
        called.append(value)
        return value

    def make(x: int) -> Dataset:
        return Dataset.range(10**12).map(note)

    stream = opened(Dataset.range(3).interleave(make, 3, 2, calls))
    assert stream.advance(6 * 10**11 + 3) == 6 * 10**11 + 3
    assert [stream.next() for _ in range(3)] == [
        2 * 10**11 + 1, 2 * 10**11, 2 * 10**11 + 1,
    ]  # fmt: skip
    stream.close()
    if calls is None:
        assert called == [2 * 10**11 + 1, 2 * 10**11, 2 * 10**11 + 1]


def test_advance_makes_the_datasets_it_skips() -> None:
    made: list[int] = []

    def make(x: int) -> Dataset:
        made.append(x)
        return Dataset.range(3)

    stream = opened(Dataset.range(10).interleave(make, 2, 1))
    assert stream.advance(12) == 12
    assert made == [0, 1, 2, 3]
    assert stream.advance(100) == 18


def test_datasets_are_made_when_their_turn_comes() -> None:
    made: list[int] = []

    def make(x: int) -> Dataset:
        made.append(x)
        return Dataset.range(5)

    stream = opened(Dataset.range(10).interleave(make, 3, 2))
    assert positions(stream, 2) == [0, 1]
    assert made == [0]
    assert positions(stream, 1) == [0]
    assert made == [0, 1]


def test_a_chunk_reads_no_more_than_its_share_of_each_dataset() -> None:
    called: list[int] = []
    dataset = Dataset.range(4).interleave(lambda x: Dataset.range(100).map(called.append), 4, 1)
    stream = opened(dataset.take(8))
    while stream.next_chunk(8, 1 << 20):
        pass
    assert len(called) == 8


def test_long_blocks_come_in_long_chunks() -> None:
    stream = opened(Dataset.range(3).interleave(lambda x: Dataset.range(1000), 3, 500))
    assert len(stream.next_chunk(1000, 1 << 20)) == 500
    stream = opened(Dataset.range(4).interleave(lambda x: Dataset.range(1000), 4, 1))
    sizes = [len(stream.next_chunk(400, 1 << 20)) for _ in range(6)]
    assert max(sizes) > 300


def test_each_interleaved_dataset_draws_for_itself() -> None:
    dataset = Dataset.range(2).interleave(lambda _: Dataset.range(20).shuffle(20), 2, 20)
    elements = tape(dataset)
    assert elements[:20] != elements[20:]
    assert tape(dataset) == elements
    parallel = Dataset.range(2).interleave(lambda _: Dataset.range(20).shuffle(20), 2, 20, 2)
    assert tape(parallel) == elements
    assert tape(dataset, seed=12) != elements


@pytest.mark.parametrize("calls", CALLS)
def test_functions_draw_the_same_in_every_thread(calls: int | None) -> None:
    def make(x: int) -> Dataset:
        length = int(stoker.random.generator().integers(1, 50))
        return Dataset.range(length).map(lambda y: int(stoker.random.generator().integers(1000)))

    expected = tape(Dataset.range(6).interleave(make, 3, 1))
    assert len(expected) > 20
    assert tape(Dataset.range(6).interleave(make, 3, 1, calls)) == expected


def test_datasets_made_inside_are_not_split() -> None:
    dataset = Dataset.range(9).interleave(Dataset.range, 2)
    (source,) = source_summary(dataset.node)
    assert not isinstance(source.splits, Unsplittable)
    stream = opened(dataset, splits=ScriptedSplits({0: [[(2, 4)]]}))
    assert positions(stream) == [0, 0, 1, 1, 2]


def test_spec_and_cardinality() -> None:
    dataset = Dataset.range(3).interleave(Dataset.range)
    assert dataset.element_spec == UnknownSpec()
    assert dataset.cardinality() == UNKNOWN_CARDINALITY
    assert Dataset.range(0).interleave(Dataset.range).cardinality() == 0
    declared = Dataset.range(3).interleave(Dataset.range, element_spec=TensorSpec((), "int64"))
    assert declared.element_spec == TensorSpec((), "int64")


@pytest.mark.parametrize(
    "wrong",
    [
        {"map_func": 3},
        {"cycle_length": 0},
        {"cycle_length": -2},
        {"block_length": 0},
        {"num_parallel_calls": 0},
        {"deterministic": 1},
        {"element_spec": 3},
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidArgumentError, match=name):
        Dataset.range(3).interleave(**{"map_func": Dataset.range, **wrong})


def test_each_repetition_makes_its_datasets_again() -> None:
    dataset = Dataset.range(2).interleave(Dataset.range, 2, num_parallel_calls=2).repeat(2)
    assert list(dataset) == [0, 0]
    assert list(dataset) == [0, 0]


def test_an_epoch_can_be_resumed_if_it_is_deterministic() -> None:
    def make(calls: int | None, deterministic: bool) -> Dataset:
        return Dataset.range(9).interleave(tens, 3, 1, calls, deterministic)

    with make(2, True).iterator() as iterator:
        assert [next(iterator) for _ in range(5)] == ORDERS[3, 1][:5]
        state = iterator.state_dict()
    for dataset in (make(2, True), make(None, True)):
        assert list(dataset.iterator(state=state)) == ORDERS[3, 1][5:]
    with make(2, False).iterator() as iterator, pytest.raises(UnimplementedError):
        iterator.state_dict()


class Gate:
    """Holds the threads of one element until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(20)


def test_others_are_read_ahead_while_one_dataset_is_slow() -> None:
    gate, last_read = Gate(), threading.Event()

    def slow(value: int) -> int:
        if value == 0:
            gate.wait()
        if value == 29:
            last_read.set()
        return value

    dataset = Dataset.range(3).interleave(
        lambda x: Dataset.range(10 * x, 10 * x + 10).map(slow), 3, 1, 2
    )
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.extend(dataset))
    reader.start()
    assert gate.reached.wait(20)
    assert last_read.wait(20)
    assert found == []
    gate.open.set()
    reader.join(20)
    assert found == [10 * x + i for i in range(10) for x in range(3)]


def test_ready_elements_come_first_in_nondeterministic_order() -> None:
    gate = Gate()

    def slow(value: int) -> int:
        if value == 0:
            gate.wait()
        return value

    dataset = Dataset.range(3).interleave(
        lambda x: Dataset.range(10 * x, 10 * x + 10).map(slow), 3, 1, 3, deterministic=False
    )
    iterator = iter(dataset)
    first = [next(iterator) for _ in range(20)]
    assert sorted(first) == list(range(10, 30))
    gate.open.set()
    assert list(iterator) == list(range(10))


def test_in_any_order_blocks_stay_whole_and_errors_are_raised() -> None:
    dataset = Dataset.range(9).interleave(
        flaky([20, 13, 4, 0, 8, 12, 16, 13, 4], 99), 3, 4, 2, deterministic=False
    )
    for _ in range(5):
        found = tape(dataset)
        values = [position for position in found if isinstance(position, int)]
        assert len(found) - len(values) == 2
        assert sorted(values) == [
            100 * x + i for x, n in enumerate([20, 0, 4, 0, 8, 12, 16, 0, 4]) for i in range(n)
        ]
        stream = opened(dataset)
        assert stream.advance(1000) == 66
        stream.close()


def test_no_more_is_read_ahead_than_the_buffers_hold() -> None:
    called: list[int] = []

    def note(value: int) -> int:
        called.append(value)
        return value

    dataset = Dataset.range(1000).interleave(lambda x: Dataset.range(10**9).map(note), 2, 1, 2)
    with dataset.iterator() as iterator:
        for read in range(2000):
            assert next(iterator) == read // 2
            assert len(called) - read <= 4 * 2 * 128


def test_no_more_bytes_are_read_ahead_than_the_options_allow() -> None:
    made: list[int] = []

    def megabyte(x: int) -> Any:
        made.append(x)
        return np.zeros(1 << 20, np.uint8)

    dataset = Dataset.range(1000).interleave(lambda x: Dataset.range(1000).map(megabyte), 2, 1, 2)
    stream = opened(dataset, autotune_bytes=8 << 20)
    for read in range(100):
        stream.next()
        assert len(made) - read <= 4 * (2 + 1)
    stream.close()


@pytest.mark.parametrize("deterministic", [True, False])
def test_close_half_way_waits_for_no_function_and_leaks_nothing(deterministic: bool) -> None:
    gate = Gate()
    closed: list[int] = []

    def numbers(x: int) -> Iterator[int]:
        try:
            yield from range(10 * x, 10 * x + 5)
            gate.wait()
            yield 1
        finally:
            closed.append(x)

    dataset = Dataset.range(10).interleave(
        lambda x: Dataset.from_generator(numbers, args=(x,)), 2, 1, 2, deterministic
    )
    iterator = iter(dataset)
    assert len([next(iterator) for _ in range(4)]) == 4
    assert gate.reached.wait(20)
    iterator.close()
    gate.open.set()


@pytest.mark.parametrize("calls", CALLS)
def test_a_dataset_that_fails_to_close_keeps_no_other_open(calls: int | None) -> None:
    closed = threading.Semaphore(0)

    def numbers(x: int) -> Iterator[int]:
        try:
            while True:
                yield x
        finally:
            closed.release()
            raise LookupError("cannot be closed")

    iterator = (
        Dataset.range(3)
        .interleave(lambda x: Dataset.from_generator(numbers, args=(x,)), 3, 1, calls)
        .iterator()
    )
    assert [next(iterator) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    with suppress(LookupError):  # it is raised unless a thread was reading
        iterator.close()
    for _ in range(3):
        assert closed.acquire(timeout=20)


def test_num_parallel_calls_is_reached_and_not_exceeded() -> None:
    lock = threading.Lock()
    running = [0, 0]
    three = threading.Barrier(3)

    def busy(value: int) -> int:
        with lock:
            running[0] += 1
            running[1] = max(running)
        if value == -1:
            three.wait(20)
        with lock:
            running[0] -= 1
        return value

    dataset = Dataset.range(3).interleave(lambda x: Dataset.range(-1, 20).map(busy), 3, 1, 3)
    assert list(dataset.take(3)) == [-1, -1, -1]
    assert running[1] == 3
    dataset = Dataset.range(8).interleave(lambda x: Dataset.range(0, 20).map(busy), 8, 1, 8)
    running[:] = [0, 0]
    assert len(list(dataset.with_options(stoker.Options(threads=2)))) == 160
    assert running[1] <= 2


@pytest.mark.parametrize("run", range(30))
def test_nested_parallel_pipelines_do_not_deadlock(run: int) -> None:
    def inner(x: int) -> Dataset:
        return Dataset.range(x, x + 5).map(lambda y: y + 1, num_parallel_calls=2).prefetch(1)

    def middle(x: int) -> list[int]:
        made = Dataset.range(x, x + 4).interleave(inner, 2, 1, num_parallel_calls=2)
        return sorted(made.prefetch(2))

    def outer(x: int) -> Dataset:
        return Dataset.range(x, x + 3).map(middle, num_parallel_calls=2)

    dataset = Dataset.range(6).interleave(outer, 3, 1, num_parallel_calls=1 + run % 3)
    expected = [middle(x) for x in interleaved([[x, x + 1, x + 2] for x in range(6)], 3, 1)]
    assert list(dataset) == expected


@pytest.mark.parametrize("run", range(30))
def test_threads_agree_with_reading_in_turn(run: int) -> None:
    lengths = [(7 * run + 5 * x) % 23 for x in range(12)]
    make = flaky(lengths, broken=run % 7)
    cycle, block = 1 + run % 5, 1 + run % 3
    expected = tape(Dataset.range(12).interleave(make, cycle, block))
    calls = 1 + run % 4
    assert tape(Dataset.range(12).interleave(make, cycle, block, calls)) == expected
    stream = opened(Dataset.range(12).interleave(make, cycle, block, calls))
    n = len(expected) // 2
    assert stream.advance(n) == n
    assert positions(stream, 5) == expected[n : n + 5]
    stream.close()
    free = tape(Dataset.range(12).interleave(make, cycle, block, calls, deterministic=False))
    assert sorted(map(str, free)) == sorted(map(str, expected))


def test_in_a_pool_thread_it_reads_inline() -> None:
    lease = pool.lease(1)
    done = threading.Event()
    found: list[Any] = []

    def read() -> None:
        try:
            found.append(tape(Dataset.range(9).interleave(tens, 3, 1, 2)))
            found.append([thread.name for thread in threading.enumerate()])
        finally:
            done.set()

    lease.submit([read])
    assert done.wait(20)
    lease.release()
    assert found[0] == ORDERS[3, 1]
    assert not any(name.startswith("stoker-reader") for name in found[1])


def test_an_unused_context_is_enough() -> None:
    assert tape(Dataset.range(9).interleave(tens, 3), epoch=Context().epoch) == ORDERS[3, 1]


def test_closing_ends_a_read_that_finds_nothing() -> None:
    """`close` is called from inside a dataset, as another thread may call it."""

    def close(x: int) -> bool:
        assert x < 10_000
        if x == 100:
            stream.close()
        return False

    stream = opened(Dataset.range(9).interleave(lambda _: Dataset.counter().filter(close), 2))
    assert positions(stream) == []
