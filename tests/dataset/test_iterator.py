"""The user's end: errors, the end, closing, exit and fork."""

import gc
import os
import pickle
import subprocess
import sys
import traceback
from collections import abc
from operator import length_hint
from typing import Any

import pytest

from stoker import Dataset, Iterator
from stoker.dataset.streams.stream import Stream
from stoker.errors import FailedPreconditionError


class Counted(Stream):
    """Counts up to 3 and tells how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0
        self._at = 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._at == 3:
            return []
        self._at += 1
        return [self._at]

    def close(self) -> None:
        self.closed += 1


class Ready(Stream):
    """Has three at once, then an error, then two more."""

    ready: abc.Iterator[int] = iter(())

    def __init__(self) -> None:
        self.left = [[0, 1, 2], None, [3, 4]]

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if not self.left:
            return []
        chunk = self.left.pop(0)
        if chunk is None:
            raise ValueError("between")
        self.ready = iter(chunk)
        return [next(self.ready)]


def test_a_function_error_shows_the_users_frames_only(caplog: pytest.LogCaptureFixture) -> None:
    def fails(x: int) -> int:
        return 1 // x

    with (
        caplog.at_level("DEBUG", "stoker"),
        pytest.raises(ZeroDivisionError) as caught,
    ):
        list(Dataset.range(3).map(fails).prefetch(2).batch(2))
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames == ["test_a_function_error_shows_the_users_frames_only", "fails"]
    assert "next_chunk" in caplog.text  # the whole traceback


def test_an_error_of_no_function_shows_all_frames() -> None:
    with pytest.raises(ValueError, match="between") as caught:
        list(Iterator(Ready()))
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "__next__" in frames


def test_what_is_ready_is_read_and_counted_one_by_one() -> None:
    stream = Ready()
    iterator = Iterator(stream)
    assert iterator.stats()["elements"] == 0
    assert next(iterator) == 0
    assert iterator.stats()["elements"] == 1
    assert next(iterator) == 1
    assert length_hint(stream.ready) == 1  # what the iterator gave was taken from the stream
    assert next(iterator) == 2
    with pytest.raises(ValueError, match="between"):
        next(iterator)
    assert list(iterator) == [3, 4]
    assert {"elements": 5, "errors": 1}.items() <= iterator.stats().items()


def test_what_is_ready_is_not_read_after_closing() -> None:
    stream = Ready()
    iterator = Iterator(stream)
    assert next(iterator) == 0
    iterator.close()
    with pytest.raises(FailedPreconditionError, match="closed"):
        next(iterator)
    assert iterator.stats()["elements"] == 1
    assert list(stream.ready) == [1, 2]


def test_the_stream_is_closed_once_at_the_end() -> None:
    stream = Counted()
    iterator = Iterator(stream)
    assert list(iterator) == [1, 2, 3]
    assert stream.closed == 1
    with pytest.raises(StopIteration):
        next(iterator)
    iterator.close()
    with pytest.raises(StopIteration):
        next(iterator)
    assert stream.closed == 1


def test_close_is_idempotent_and_reading_afterwards_says_so() -> None:
    stream = Counted()
    with Iterator(stream) as iterator:
        assert next(iterator) == 1
    iterator.close()
    assert stream.closed == 1
    with pytest.raises(FailedPreconditionError, match="closed"):
        next(iterator)


def test_a_forgotten_iterator_closes_its_stream() -> None:
    stream = Counted()
    next(Iterator(stream))
    gc.collect()
    assert stream.closed == 1


def test_an_error_is_a_position_and_reading_goes_on_behind_it() -> None:
    iterator = iter(Dataset.range(4).map(lambda x: 12 // (x - 1)))
    seen: list[Any] = [next(iterator)]
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    assert [*seen, *iterator] == [-12, 12, 6]
    assert {"elements": 3, "errors": 1}.items() <= iterator.stats().items()


def test_stream_and_dataset_hold_no_element_ahead_of_the_reader() -> None:
    called: list[int] = []
    iterator = iter(Dataset.range(100).map(called.append))
    next(iterator)
    next(iterator)
    assert called == [0, 1]


def test_an_iterator_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="pickle the Dataset"):
        pickle.dumps(iter(Dataset.range(3)))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_inherited_iterator_raises_in_the_child_and_a_new_one_works() -> None:
    dataset = Dataset.range(100).map(lambda x: x + 1, num_parallel_calls=2).prefetch(2)
    with dataset.iterator() as iterator:
        assert next(iterator) == 1
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                next(iterator)
            except FailedPreconditionError as error:
                iterator.close()
                os.write(writer, f"{error}|{next(iter(dataset))}".encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        assert said.startswith("this iterator was inherited through fork")
        assert said.endswith("|1")
        assert next(iterator) == 2


@pytest.mark.parametrize("how", ["pass", "raise KeyboardInterrupt", "import sys; sys.exit(0)"])
def test_a_program_that_leaves_an_iterator_open_exits(how: str) -> None:
    code = (
        "from stoker import Dataset\n"
        "import time\n"
        "dataset = Dataset.range(10**9).map(lambda x: x + 1, num_parallel_calls=2).prefetch(2)\n"
        "iterator = iter(dataset)\n"
        "next(iterator)\n" + how
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, timeout=20, capture_output=True, text=True, check=False)
    assert "Fatal" not in result.stderr
    assert ("KeyboardInterrupt" in result.stderr) == ("Keyboard" in how)
