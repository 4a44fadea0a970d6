"""Epochs of loaders: errors keep nothing alive, and reading ends when another thread closes."""

import gc
import os
import threading
import weakref

import pytest

from stoker import Dataset
from stoker.adapters.epochs import EpochProgress
from stoker.adapters.iteration import LoaderIterator
from stoker.adapters.step_queue import StepQueue
from stoker.adapters.steps import Step, Steps
from stoker.errors import FailedPreconditionError

DEADLINE = 20


def begun(dataset, group_size=None, prefetch=0):
    iterator = dataset.iterator()
    return LoaderIterator(
        iterator,
        EpochProgress(0, iterator),
        Steps(iterator, list.pop, group_size),
        prefetch=prefetch,
    )


def read_error(reader):
    """Read until an error; return a reference to the reader."""
    try:  # pytest.raises would keep the frames
        list(reader)
    except ZeroDivisionError:
        return weakref.ref(reader)
    raise AssertionError("no error was raised")


@pytest.mark.parametrize("group_size", [None, 2])
def test_error_leaves_no_cycle(group_size):
    gc.collect()
    gc.disable()
    try:
        dataset = Dataset.range(3).map(lambda i: 1 // (i - 1))
        reference = read_error(begun(dataset, group_size))
        assert reference() is None
    finally:
        gc.enable()


def test_closing_ends_a_read_of_another_thread():
    started, release = threading.Event(), threading.Event()

    def read():
        started.set()
        release.wait(DEADLINE)
        return Step([1])

    steps = StepQueue(read, release.set, 1)
    found = []

    def read_all():
        while True:
            step = steps.read()
            found.append(step)
            if step.error is not None:
                return

    reader = threading.Thread(target=read_all)
    reader.start()
    assert started.wait(DEADLINE)
    steps.close()
    reader.join(DEADLINE)
    assert not reader.is_alive()
    assert isinstance(found[-1].error, FailedPreconditionError)


def test_inherited_reader_raises_in_a_forked_child():
    reader = begun(Dataset.counter(), prefetch=1)
    next(reader)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for _ in range(5):
                next(reader)
        except FailedPreconditionError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    reader.close()
