"""Arrays count as owned if only the element refers to their memory."""

import weakref
from dataclasses import dataclass

import numpy as np
import pytest

import stoker
from stoker import Dataset
from stoker.adapters.ownership import map_leaves
from stoker.elements.structure import flatten

TABLE = np.zeros((4, 20_000))


def owned(dataset):
    """Return for each element the `owned` of its leaves, read as an adapter reads it."""
    iterator = iter(dataset)
    found = []
    while holder := _read(iterator):
        found.append(map_leaves(holder, lambda _, own: own))
    return found


def _read(iterator):
    try:
        return [next(iterator)]
    except StopIteration:
        return []


def fill(i):
    return np.full(20_000, i)


def reuse():
    buffer = np.zeros(20_000)
    for _ in range(2):
        yield buffer


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(2).map(fill),
        Dataset.range(4).map(fill).batch(2),
        Dataset.range(4).map(fill, num_parallel_calls=2).batch(2).prefetch(2),
        Dataset.from_tensor_slices(TABLE).batch(2),
        Dataset.range(2).map(lambda i: {"a": fill(i)}),
    ],
    ids=["map", "batch", "parallel", "slices", "dict"],
)
def test_new_arrays_are_owned(dataset):
    assert owned(dataset) in ([True, True], [{"a": True}] * 2)


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(2).map(lambda _: TABLE),
        Dataset.range(2).map(lambda i: TABLE[i]),
        Dataset.from_tensor_slices(TABLE[:2]),
        Dataset.from_tensors(TABLE).repeat(2),
        Dataset.range(2).map(fill).cache(),
        Dataset.from_generator(reuse),
    ],
    ids=["object", "view", "slices", "tensors", "cache", "reused"],
)
def test_arrays_that_others_see_are_not_owned(dataset):
    assert owned(dataset) == [False, False]


@dataclass
class Sample:
    x: np.ndarray


def kept_in(make):
    """Return a function of an index whose results, containers of new arrays, stay referenced."""
    kept = [make(np.zeros(20_000)) for _ in range(2)]
    return lambda i: kept[i]


def yield_same_dict():
    element = {}
    for i in range(2):
        element["x"] = fill(i)
        yield element


def counted(state, _):
    state = {"x": state["x"] + 1}
    return state, state


@pytest.mark.parametrize(
    "dataset",
    [
        *(
            Dataset.range(2).map(kept_in(make))
            for make in (
                lambda x: {"x": x},
                lambda x: (x,),
                lambda x: [x],
                lambda x: {"a": ({"x": x},)},
                Sample,
            )
        ),
        Dataset.range(2).map(fill).map(lambda x: {"x": x}).cache(),
        Dataset.from_generator(yield_same_dict),
        Dataset.range(2).scan({"x": np.zeros(20_000)}, counted),
    ],
    ids=["dict", "tuple", "list", "nested", "dataclass", "cache", "generator", "scan"],
)
def test_arrays_in_containers_that_others_see_are_not_owned(dataset):
    for found in owned(dataset):
        assert flatten(found) == [False]


def test_container_in_a_container_that_others_see_is_not_owned():
    inner = kept_in(lambda x: {"x": x})
    assert owned(Dataset.range(2).map(lambda i: (inner(i), fill(i)))) == [({"x": False}, True)] * 2


def test_weakly_referenced_arrays_are_not_owned():
    references = []

    def remembered(i):
        array = fill(i)
        references.append(weakref.ref(array))
        return array

    assert owned(Dataset.range(2).map(remembered)) == [False, False]


def test_array_that_occurs_twice_is_not_owned():
    def twice(i):
        array = fill(i)
        return array, array

    assert owned(Dataset.range(1).map(twice)) == [(False, False)]


def test_memory_map_is_not_owned(tmp_path):
    path = tmp_path / "data.npy"
    np.save(path, np.zeros(20_000))

    def opened(_):
        return np.load(path, mmap_mode="r+")[1:].view(np.ndarray)

    assert owned(Dataset.range(2).map(opened)) == [False, False]


@pytest.mark.parametrize("protocol", ["shm", "tcp"])
def test_received_batches_are_owned(protocol):
    with stoker.LocalCluster(1) as cluster:
        dataset = Dataset.range(4).map(fill).batch(2)
        assert owned(dataset.distribute(cluster, data_transfer_protocol=protocol)) == [True, True]


def test_elements_of_a_worker_in_this_process_are_safe():
    with stoker.LocalCluster(1, threads=True) as cluster:
        iterator = iter(Dataset.range(1).map(lambda _: TABLE).distribute(cluster))
        holder = [next(iterator)]
        map_leaves(holder, lambda leaf, own: leaf.fill(1) if own else None)
        iterator.close()
    assert not TABLE.any()
