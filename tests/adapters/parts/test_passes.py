"""Copies of a dataset in several processes agree on the number of their pass."""

import multiprocessing
import os
import pickle
import sys
import types
from multiprocessing import forkserver

import pytest

from stoker.adapters.passes import Copy, PassCounter

COPIES = 3
METHODS = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])


def be_worker():
    """Let this child process pass for a worker of PyTorch's loader."""
    pytorch = types.SimpleNamespace(get_worker_info=lambda: "a worker")
    sys.modules["torch.utils.data"] = pytorch  # type: ignore[assignment]


def begin(counter, number, passes, queue):
    """Begin passes as one of several copies that are not in step."""
    be_worker()
    queue.put((number, [counter.begin(Copy(number, k)) for k in range(passes)]))


def begin_when_told(counter, number, told, queue):
    """Begin a pass as a worker that is slow to start."""
    be_worker()
    assert told.wait(50)
    queue.put((number, counter.begin(Copy(number, 0))))


def begin_as_rank(counter, queue):
    """Begin passes as a process that trains."""
    queue.put([counter.begin() for _ in range(2)])


@pytest.fixture(autouse=True)
def _server():
    """Let the server that forks processes have imported stoker, as if the main module does."""
    multiprocessing.set_forkserver_preload(["stoker.adapters.passes"])
    yield
    multiprocessing.set_forkserver_preload(["__main__"])
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # it would live as long as the tests


@pytest.fixture
def processes():
    """Start processes, and wait for them at the end."""
    started = []

    def start(context, target, *arguments):
        started.append(context.Process(target=target, args=arguments))
        started[-1].start()

    yield start
    for process in started:
        process.join()
        process.close()


def received(queue, count):
    found = [queue.get(timeout=50) for _ in range(count)]
    queue.close()
    queue.join_thread()
    return found


@METHODS
def test_copies_in_processes_agree(method, processes):
    context = multiprocessing.get_context(method)
    counter, queue = PassCounter(), context.Queue()
    for number in range(COPIES):
        processes(context, begin, counter, number, 4, queue)
    found = dict(received(queue, COPIES))
    assert found == {number: [0, 1, 2, 3] for number in range(COPIES)}
    assert counter.next() == 4


@METHODS
def test_copy_that_starts_late_joins_its_own_pass(method, processes):
    context = multiprocessing.get_context(method)
    counter, queue = PassCounter(), context.Queue()
    # The second copy of the first pass begins last, as if the loader had dropped that pass.
    told = [context.Event() for _ in range(4)]
    for i in range(4):
        processes(context, begin_when_told, counter, i % 2, told[i], queue)
    found = []
    for i in (0, 3, 2, 1):
        told[i].set()
        found.append(queue.get(timeout=50))
    received(queue, 0)  # closes it
    assert found == [(0, 0), (1, 1), (0, 1), (1, 0)]


@METHODS
def test_ranks_that_get_one_dataset_count_by_themselves(method, processes):
    context = multiprocessing.get_context(method)
    counter, queue = PassCounter(), context.Queue()
    counter.set_next(3)
    for _ in range(2):
        processes(context, begin_as_rank, counter, queue)
    assert received(queue, 2) == [[3, 4], [3, 4]]
    assert counter.next() == 3


def test_passes_of_one_process_have_numbers_in_order():
    counter = PassCounter()
    assert [counter.begin() for _ in range(3)] == [0, 1, 2]


def test_set_next_names_the_following_passes():
    counter = PassCounter()
    counter.begin()
    counter.set_next(7)
    assert [counter.begin(), counter.begin(), counter.next()] == [7, 8, 9]


def test_resumed_pass_gives_the_copies_its_seeds():
    counter = PassCounter()
    assert counter.seeds() is None
    counter.resume(4, 7, [0, 2])
    assert (counter.seeds(), counter.begin()) == ((7, [0, 2]), 5)


def test_pickled_counter_is_a_copy():
    counter = PassCounter()
    counter.resume(2, 7, [1])
    copy = pickle.loads(pickle.dumps(counter))
    assert (copy.begin(), counter.next(), copy.seeds()) == (3, 3, (7, [1]))


def test_descriptor_is_closed_with_the_counter():
    counter = PassCounter()
    descriptor = counter._descriptor
    del counter
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_rest_of_a_write_that_was_interrupted_is_ignored():
    counter = PassCounter()
    counter.begin()
    os.pwrite(counter._descriptor, b"]}", os.fstat(counter._descriptor).st_size)
    assert (counter.next(), counter.begin()) == (1, 1)
