"""ignore_errors: failed elements are skipped and counted."""

import logging
import threading
import traceback
from typing import Any

import pytest

import stoker
from stoker.dataset.nodes.ignore_errors import IgnoreErrors
from stoker.dataset.nodes.range import Range
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UserFunctionError,
)
from stoker.service import distribute, from_dataset_id, register_dataset
from tests.dataset.verbs import opened, tape_by
from tests.serving import Service, outcomes, read


class Odd(Exception):
    """An odd number."""


def even(x: int) -> int:
    if x % 2:
        raise Odd(x)
    return x


def stops(x: int) -> int:
    if x == 1:
        raise StopIteration
    return x


def evens(n: int, **arguments: Any) -> stoker.Dataset:
    return stoker.Dataset.range(n).map(even).ignore_errors(**arguments)


@pytest.mark.parametrize("calls", [None, 3])
def test_failed_elements_are_skipped_and_counted(calls):
    dataset = stoker.Dataset.range(9).map(even, num_parallel_calls=calls).ignore_errors()
    with dataset.iterator() as iterator:
        assert list(iterator) == [0, 2, 4, 6, 8]
        assert {"elements": 5, "errors": 0, "errors_ignored": 4}.items() <= iterator.stats().items()


def test_nothing_is_counted_where_nothing_fails():
    with stoker.Dataset.range(3).ignore_errors().iterator() as iterator:
        assert list(iterator) == [0, 1, 2]
        assert "errors_ignored" not in iterator.stats()


def test_a_users_stop_iteration_is_an_error_like_others():
    assert list(stoker.Dataset.range(3).map(stops).ignore_errors()) == [0, 2]


def test_one_more_than_max_errors_is_raised_as_it_is():
    with evens(10, max_errors=2).iterator() as iterator:
        found = outcomes(iterator)
    assert [x if isinstance(x, int) else repr(x) for x in found] == [
        *(0, 2, 4, "Odd(5)", 6, "Odd(7)", 8, "Odd(9)"),
    ]
    assert {"elements": 5, "errors": 3, "errors_ignored": 2}.items() <= iterator.stats().items()


def test_with_no_errors_allowed_it_is_as_if_it_were_not_there():
    with evens(3, max_errors=0).iterator() as iterator:
        assert [type(x) for x in outcomes(iterator)] == [int, Odd, int]


def test_max_errors_applies_to_each_repetition():
    with evens(4, max_errors=2).repeat(3).iterator() as iterator:
        assert list(iterator) == [0, 2] * 3
        assert iterator.stats()["errors_ignored"] == 6


@pytest.mark.parametrize("max_errors", [None, 3])
@pytest.mark.parametrize(
    "rounds",
    [
        [("chunk", 4)],
        [("next", 1), ("chunk", 100)],
        [("chunk", 2), ("advance", 3), ("next", 1)],
    ],
)
def test_every_order_of_reading_gives_the_same_stream(max_errors, rounds):
    node = evens(23, max_errors=max_errors).node
    expected = tape_by([("next", 1)], open_stream(node, Context()))
    found = tape_by(rounds, open_stream(node, Context()))
    assert len(found) == len(expected)
    assert all(f in (None, e) for e, f in zip(expected, found, strict=True))


def test_after_the_end_it_is_the_end():
    stream = open_stream(evens(2).node, Context())
    assert tape_by([("next", 1)], stream) == [0]
    assert stream.next_chunk(3, 100) == []
    assert stream.advance(3) == 0
    with pytest.raises(StopIteration):
        stream.next()


def test_a_source_that_fails_as_a_whole_is_its_one_position(tmp_path):
    dataset = stoker.Dataset.list_files(str(tmp_path / "none*"))
    with pytest.raises(NotFoundError):
        list(dataset)
    with dataset.ignore_errors().iterator() as iterator:
        assert list(iterator) == []
        assert iterator.stats()["errors_ignored"] == 1


class Failing(Stream):
    """Raises the given errors in turn, the last one endlessly."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        raise self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]


def ignoring(stream: Stream) -> Stream:
    class Source(Range, frozen=True, eq=False, kw_only=True):
        def open(self, context: Context) -> Stream:
            return stream

    return IgnoreErrors(input=Source(start=0, stop=1, step=1)).open(Context())


@pytest.mark.parametrize("verb", ["next", "next_chunk", "advance"])
def test_a_permanently_failed_stream_is_not_read_endlessly(verb):
    stream = ignoring(Failing(DataLossError("one"), UnavailableError("gone")))
    if verb == "advance":
        assert stream.advance(3) == 3  # each is a position: the error is never passed
        return
    arguments = () if verb == "next" else (3, 100)
    for _ in range(3):
        with pytest.raises(UnavailableError, match="gone"):
            getattr(stream, verb)(*arguments)


def test_an_error_that_prevents_all_reading_is_not_ignored(tmp_path):
    path = str(tmp_path / "kept")
    list(stoker.Dataset.range(3).cache(path))
    with pytest.raises(FailedPreconditionError, match="another pipeline"):
        list(stoker.Dataset.range(4).cache(path).ignore_errors())


def test_a_repeatedly_raised_error_is_ignored_each_time():
    error = FailedPreconditionError("the user's own")

    def function(x: int) -> int:
        if x < 5:
            raise error
        return x

    assert list(stoker.Dataset.range(7).map(function).ignore_errors()) == [5, 6]


def test_keyboard_interrupt_is_not_ignored():
    def function(x: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(stoker.Dataset.range(3).map(function).ignore_errors())


def test_closing_ends_a_read_that_finds_nothing_but_errors():
    began = threading.Event()

    def function(x: int) -> int:
        began.set()
        raise Odd(x)

    dataset = stoker.Dataset.range(10).repeat().map(function).ignore_errors()
    stream = open_stream(dataset.node, Context())
    reader = threading.Thread(target=lambda: stream.next_chunk(1, 1))
    reader.start()
    assert began.wait(10)
    stream.close()
    reader.join(10)
    assert not reader.is_alive()


def test_warnings_say_where_it_was(caplog):
    with caplog.at_level(logging.WARNING, "stoker.dataset"):
        assert list(evens(4, log_warning=True)) == [0, 2]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith("ignored an error in `map` (tests/dataset/nodes/test_ignore_er")
    assert messages[0].endswith(", element 1): Odd: 1 (1 in this epoch)")
    caplog.clear()
    assert list(evens(4)) == [0, 2]
    assert caplog.records == []


@pytest.mark.parametrize(
    ("input_", "cardinality"),
    [
        (stoker.Dataset.range(0), 0),
        (stoker.Dataset.range(3), stoker.UNKNOWN_CARDINALITY),
        (stoker.Dataset.range(3).repeat(), stoker.INFINITE_CARDINALITY),
    ],
)
def test_spec_and_cardinality(input_, cardinality):
    dataset = input_.ignore_errors()
    assert dataset.cardinality() == cardinality
    assert dataset.element_spec == input_.element_spec


@pytest.mark.parametrize(
    "arguments", [{"max_errors": -1}, {"max_errors": 1.5}, {"max_errors": True}, {"log_warning": 1}]
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(InvalidArgumentError, match=f"`{next(iter(arguments))}` must be"):
        stoker.Dataset.range(3).ignore_errors(**arguments)


def test_its_wire_form_is_the_same_dataset():
    node = decode_tree(encode_tree(evens(6, max_errors=1).node))
    found = tape_by([("next", 1)], open_stream(node, Context()))
    assert found == [0, 2, "Odd(3)", 4, "Odd(5)"]


# ── with a service ───────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("mode", ["distributed_epoch", "parallel_epochs"])
def test_errors_ignored_by_workers_are_counted_at_the_client(workers, mode):
    with Service(workers) as service:
        dataset = evens(1000).apply(distribute(mode, service.target))
        for _ in range(2):
            with dataset.iterator() as iterator:
                found = read(iterator)
                times = workers if mode == "parallel_epochs" else 1
                assert sorted(found) == sorted([*range(0, 1000, 2)] * times)
                stats = iterator.stats()
            assert (stats["elements"], stats["errors"]) == (500 * times, 0)
            assert stats["errors_ignored"] == 500 * times


def test_errors_after_the_last_element_are_counted_too():
    with Service(1) as service:
        dataset = stoker.Dataset.range(10).map(lambda x: 1 // (x < 3)).ignore_errors()
        with dataset.distribute(service.target).iterator() as iterator:
            assert read(iterator) == [1, 1, 1]
            assert iterator.stats()["errors_ignored"] == 7


def test_counts_pass_through_a_worker_that_is_a_client_itself():
    with Service(1) as inner, Service(1) as outer:
        dataset = evens(100).distribute(inner.target).map(lambda x: x + 1)
        dataset = dataset.apply(distribute("parallel_epochs", outer.target))
        with dataset.iterator() as iterator:
            assert read(iterator) == list(range(1, 101, 2))
            assert iterator.stats()["errors_ignored"] == 50


def test_beyond_max_errors_the_trainer_sees_the_workers_error():
    with Service(1) as service:
        dataset = evens(6, max_errors=2).distribute(service.target)
        with dataset.iterator() as iterator:
            found = outcomes(iterator)
        assert found[:3] == [0, 2, 4]
        assert isinstance(found[3], UserFunctionError)
        assert iterator.stats()["errors_ignored"] == 2


def test_errors_of_workers_are_ignored_at_the_client():
    with Service(2) as service:
        dataset = stoker.Dataset.range(100).map(even).distribute(service.target).ignore_errors()
        with dataset.iterator() as iterator:
            assert sorted(read(iterator)) == list(range(0, 100, 2))
            assert iterator.stats()["errors_ignored"] == 50


def test_a_permanently_failed_iteration_is_not_ignored():
    with Service(1) as service:
        dataset_id = register_dataset(service.target, stoker.Dataset.range(10))
        wrong = stoker.TensorSpec((3,), "float32")
        dataset = from_dataset_id("parallel_epochs", service.target, dataset_id, element_spec=wrong)
        with pytest.raises(InvalidArgumentError, match="the elements do not match"):
            read(dataset.ignore_errors())


def test_one_error_that_is_raised_again_and_again_does_not_grow() -> None:
    always = ValueError("always this")

    def function(x: int) -> int:
        raise always

    stream = opened(stoker.Dataset.range(1000).map(function).ignore_errors())
    assert stream.advance(1) == 0
    assert len(list(traceback.walk_tb(always.__traceback__))) < 10
    assert len(always.__notes__) == 1
