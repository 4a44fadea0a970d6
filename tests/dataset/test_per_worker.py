"""per_worker: built once in each process that uses it."""

import gc
import os
import pickle
import threading
import weakref
from typing import Any

import pytest

import stoker
from stoker import Dataset, per_worker
from stoker.dataset.pickling.pickled import Pickled
from stoker.errors import InvalidArgumentError


class Model:
    """Something that cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, x: int) -> int:
        with self.lock:
            return x * 2


class Factory:
    def __init__(self) -> None:
        self.built: list[Model] = []

    def __call__(self) -> Model:
        self.built.append(Model())
        return self.built[-1]


def test_it_is_called_like_the_built_object_and_built_once() -> None:
    factory = Factory()
    doubled = Dataset.range(20).map(per_worker(factory), num_parallel_calls=4)
    assert list(doubled) == list(doubled) == [2 * x for x in range(20)]
    assert len(factory.built) == 1


def test_nothing_is_built_before_it_is_used() -> None:
    factory = Factory()
    Dataset.range(3).map(per_worker(factory))
    assert factory.built == []


def test_threads_that_race_to_the_first_use_get_the_same() -> None:
    barrier = threading.Barrier(8)
    entered = threading.Event()

    def factory() -> object:
        assert not entered.is_set()
        entered.set()
        return object()

    shared = per_worker(factory)
    found: list[object] = []

    def use() -> None:
        barrier.wait(10)
        found.append(shared.get())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_one_a_thread_if_asked_for() -> None:
    own = per_worker(Model, per_thread=True)
    found = [own.get(), own.get()]
    thread = threading.Thread(target=lambda: found.append(own.get()))
    thread.start()
    thread.join()
    assert found[0] is found[1]
    assert found[0] is not found[2]


def test_only_copies_of_one_share_the_built_object() -> None:
    shared = per_worker(Model)
    copy: Any = Pickled.from_blob(Pickled.of(shared).blob).value
    assert copy.get() is shared.get()
    assert per_worker(Model).get() is not shared.get()


def test_a_dataset_with_it_can_be_pickled_after_use() -> None:
    dataset = Dataset.range(3).map(per_worker(Model))
    assert list(dataset) == [0, 2, 4]
    assert list(pickle.loads(pickle.dumps(dataset))) == [0, 2, 4]


def test_the_built_object_dies_with_the_last_dataset_using_it() -> None:
    dataset = Dataset.range(1).map(per_worker(Model))
    list(dataset)
    built = weakref.ref(next(obj for obj in gc.get_objects() if type(obj) is Model))
    assert built() is not None
    del dataset
    gc.collect()
    assert built() is None


def test_a_factory_that_raises_is_called_again_for_the_next() -> None:
    calls: list[int] = []

    def factory() -> Model:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("no weights")
        return Model()

    iterator = iter(Dataset.range(3).map(per_worker(factory)))
    with pytest.raises(OSError, match="no weights"):
        next(iterator)
    assert list(iterator) == [2, 4]
    assert len(calls) == 2


def test_a_forked_process_builds_its_own() -> None:
    shared: per_worker[object] = per_worker(object)
    here = id(shared.get())
    kept = shared.get()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"same" if id(shared.get()) == here else b"own")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        assert answer.read() == b"own"
    assert shared.get() is kept


def test_a_factory_must_be_a_function() -> None:
    with pytest.raises(InvalidArgumentError, match="`factory` must be a function"):
        per_worker(3)  # type: ignore[arg-type]


def test_workers_of_a_service_build_their_own() -> None:
    def factory() -> Any:
        lock = threading.Lock()  # cannot be pickled

        def where(x: int) -> tuple[int, int]:
            with lock:
                return x, os.getpid()

        return where

    with stoker.LocalCluster(num_workers=2) as cluster:
        dataset = Dataset.range(100).map(stoker.per_worker(factory)).distribute(cluster)
        pairs = list(dataset)
    assert sorted(x for x, _ in pairs) == list(range(100))
    assert os.getpid() not in {pid for _, pid in pairs}
