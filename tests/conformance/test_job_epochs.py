"""BEHAVIOUR.md, Jobs: epochs of jobs that several readers share, and datasets that read jobs."""

from collections import Counter
from contextlib import ExitStack

import pytest

import stoker
from stoker import Dataset
from stoker.service import distribute, from_dataset_id, register_dataset
from tests.serving import read

OFF = "parallel_epochs"


# ── epochs of one job ────────────────────────────────────────────────────────────────────────────
def test_clients_that_repeat_share_each_epoch(serve):
    transformation = distribute(OFF, serve(1).target, job_name="one")
    datasets = [Dataset.range(100).apply(transformation).repeat(3) for _ in range(2)]
    with ExitStack() as stack:
        one, other = [stack.enter_context(dataset.iterator()) for dataset in datasets]
        found = read(one, 60) + read(other, 60) + read(one) + read(other)
    assert Counter(found) == dict.fromkeys(range(100), 3)


def test_a_named_job_yields_everything_in_each_epoch(serve):
    dataset = Dataset.range(10).apply(distribute(OFF, serve(1).target, job_name="one"))
    assert [read(dataset) for _ in range(5)] == [list(range(10))] * 5


def _reader(target: str, dataset_id: str) -> Dataset:
    return from_dataset_id(OFF, target, dataset_id, job_name="one")


def test_readers_of_one_id_share_the_job(serve):
    target = serve(1).target
    ids = [register_dataset(target, Dataset.range(10), dataset_id="mine") for _ in range(2)]
    assert [read(_reader(target, each)) for each in ids] == [list(range(10)), []]


@pytest.mark.parametrize("second", [None, "another"])
def test_readers_of_other_ids_have_another_job(serve, second):
    target = serve(1).target
    ids = [register_dataset(target, Dataset.range(10), dataset_id=x) for x in ("mine", second)]
    assert [read(_reader(target, each)) for each in ids] == [list(range(10))] * 2


# ── one dataset from several jobs ────────────────────────────────────────────────────────────────
def test_a_zip_reads_jobs_of_different_modes(serve):
    target = serve(1).target
    modes = ["distributed_epoch", OFF]
    jobs = [Dataset.range(100).apply(distribute(mode, target)) for mode in modes]
    assert read(Dataset.zip(*jobs)) == [(i, i) for i in range(100)]


def test_datasets_distributed_in_interleave_take_turns(serve):
    transformation = distribute(OFF, serve(1).target)
    dataset = Dataset.range(2).interleave(
        lambda x: Dataset.range(10 * x, 10 * x + 2).apply(transformation), cycle_length=2
    )
    assert read(dataset) == [0, 10, 1, 11]


# ── other datasets ───────────────────────────────────────────────────────────────────────────────
def test_a_generator_is_read_by_each_worker(serve):
    dataset = Dataset.from_generator(lambda: iter(range(10)))
    found = read(dataset.apply(distribute(OFF, serve(2).target)))
    assert Counter(found) == dict.fromkeys(range(10), 2)


def test_a_nested_structure_is_read_by_id(serve, transport):
    target = serve(1).target
    numbers = Dataset.range(10)
    dataset = Dataset.zip({"a": (numbers, numbers), "b": numbers})
    spec = dataset.element_spec
    for element_spec in (None, spec):
        dataset_id = register_dataset(target, dataset)
        reader = from_dataset_id(
            OFF, target, dataset_id, element_spec, data_transfer_protocol=transport
        )
        assert reader.element_spec == spec
        assert read(reader) == [{"a": (i, i), "b": i} for i in range(10)]


def test_a_short_batch_is_yielded_by_each_worker(serve):
    dataset = stoker.Dataset.range(10).batch(1000)
    found = read(dataset.apply(distribute(OFF, serve(2).target)))
    assert [batch.tolist() for batch in found] == [list(range(10))] * 2
