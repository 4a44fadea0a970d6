"""Copies of a dataset in several processes agree on the number of their pass."""

import multiprocessing
import os
import pickle
from multiprocessing import forkserver

import pytest

from stoker.adapters.passes import Copy, PassCounter

COPIES = 3


def begin(counter, passes, queue, number):
    """Begin passes as one of several copies that are not in step."""
    queue.put((number, [counter.begin(Copy(number, f"seed {k}")) for k in range(passes)]))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_copies_in_processes_agree(method):
    context = multiprocessing.get_context(method)
    counter, queue = PassCounter(), context.Queue()
    processes = [
        context.Process(target=begin, args=(counter, 4, queue, number)) for number in range(COPIES)
    ]
    for process in processes:
        process.start()
    found = dict(queue.get(timeout=50) for _ in processes)
    for process in processes:
        process.join()
    queue.close()
    queue.join_thread()
    if method == "forkserver":
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # it would live as long as the tests
    assert found == {number: [0, 1, 2, 3] for number in range(COPIES)}
    assert counter.next() == 4


def test_new_copies_begin_a_new_pass():
    counter = PassCounter()
    first = [counter.begin(Copy(number, "a")) for number in range(2)]
    second = [counter.begin(Copy(number, "b")) for number in range(2)]
    assert (first, second) == ([0, 0], [1, 1])


def test_equal_keys_of_the_same_copy_are_two_passes():
    counter = PassCounter()
    passes = [[counter.begin(Copy(number, "seed")) for number in range(2)] for _ in range(3)]
    assert passes == [[0, 0], [1, 1], [2, 2]]


def test_passes_that_overlap_are_kept_apart():
    counter = PassCounter()
    begun = [counter.begin(Copy(n, key)) for n, key in [(0, "a"), (0, "b"), (1, "a"), (1, "b")]]
    assert begun == [0, 1, 0, 1]


def test_set_next_names_the_following_passes():
    counter = PassCounter()
    counter.begin(Copy())
    counter.set_next(7)
    assert [counter.begin(Copy()), counter.begin(Copy()), counter.next()] == [7, 8, 9]


def test_resumed_pass_gives_the_copies_its_seed():
    counter = PassCounter()
    assert counter.seed() is None
    counter.resume(4, 7)
    assert (counter.seed(), counter.begin(Copy())) == (7, 5)


def test_pickled_counter_is_a_copy():
    counter = PassCounter()
    counter.resume(2, 7)
    copy = pickle.loads(pickle.dumps(counter))
    assert (copy.begin(Copy()), counter.next(), copy.seed()) == (3, 3, 7)


def test_descriptor_is_closed_with_the_counter():
    counter = PassCounter()
    descriptor = counter._descriptor
    del counter
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_rest_of_a_write_that_was_interrupted_is_ignored():
    counter = PassCounter()
    counter.begin(Copy(0, "a"))
    os.pwrite(counter._descriptor, b"]}", os.fstat(counter._descriptor).st_size)
    assert (counter.next(), counter.begin(Copy(0, "b"))) == (1, 1)
