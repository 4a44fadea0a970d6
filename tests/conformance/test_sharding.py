"""BEHAVIOUR.md, Sharding (OFF and DYNAMIC), cardinality, target_workers."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker.errors import InvalidArgumentError
from stoker.service import distribute, from_dataset_id, register_dataset
from tests.serving import eventually, read

DYNAMIC = "distributed_epoch"
ADDRESS = "localhost:5050"


@pytest.mark.parametrize("workers", [1, 3])
def test_repeat_before_distribute_yields_count_copies(serve, workers):
    dataset = stoker.Dataset.range(100).repeat(5).distribute(serve(workers).target, DYNAMIC)
    assert Counter(read(dataset)) == dict.fromkeys(range(100), 5)


def test_nested_repeats_before_distribute_multiply(serve):
    dataset = stoker.Dataset.range(10).repeat(2).map(lambda x: x).repeat(3)
    assert Counter(read(dataset.distribute(serve(2).target, DYNAMIC))) == dict.fromkeys(
        range(10), 6
    )


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
@pytest.mark.parametrize(("count", "elements"), [(1, 30), (100, 1000)])
def test_infinite_repeat_before_distribute(serve, mode, count, elements):
    dataset = stoker.Dataset.range(count).repeat().apply(distribute(mode, serve(3).target))
    with dataset.iterator() as iterator:
        assert set(read(iterator, elements)) == set(range(count))


def test_infinite_repeat_of_an_empty_dataset_ends(serve):
    assert read(stoker.Dataset.range(0).repeat().distribute(serve(2).target, DYNAMIC)) == []


def test_inner_datasets_of_flat_map_are_not_split(serve):
    dataset = stoker.Dataset.range(20).flat_map(
        lambda i: stoker.Dataset.range(10).map(lambda j, i=i: (i, j))
    )
    expected = [(i, j) for i in range(20) for j in range(10)]
    assert sorted(read(dataset.distribute(serve(3).target, DYNAMIC))) == expected


def test_transformations_before_distribute_run_on_workers(serve):
    dataset = (
        stoker.Dataset.range(1000)
        .shuffle(100)
        .map(lambda x: x + 1, num_parallel_calls=stoker.AUTOTUNE)
        .filter(lambda x: x % 2 == 0)
        .batch(7)
        .prefetch(2)
    )
    batches = read(dataset.distribute(serve(3).target, DYNAMIC))
    found = np.concatenate(batches).tolist()
    assert sorted(found) == list(range(2, 1001, 2))


def test_array_sources_are_split_by_row(serve):
    data = {"x": np.arange(300).reshape(100, 3), "y": np.arange(100)}
    dataset = stoker.Dataset.from_tensor_slices(data).distribute(serve(3).target, DYNAMIC)
    found = sorted(read(dataset), key=lambda row: int(row["y"]))
    assert [int(row["y"]) for row in found] == list(range(100))
    assert [row["x"].tolist() for row in found] == data["x"].tolist()


@pytest.mark.parametrize("epochs", [1, 3])
def test_shuffled_batches_of_arrays_contain_each_row_once(serve, transport, epochs):
    images = np.arange(2000 * 300).reshape(2000, 300)
    data = stoker.Dataset.from_tensor_slices((images, {"label": np.arange(2000)}))
    dataset = data.shuffle(500).repeat(epochs).enumerate().batch(16)
    distributed = dataset.distribute(
        serve(2).target, processing_mode="distributed_epoch", data_transfer_protocol=transport
    )
    labels = []
    for _, (pixels, found) in distributed:
        assert np.array_equal(pixels, images[found["label"]])
        pixels[...] = -1  # in shared memory: it must reach neither the source nor other batches
        labels += found["label"].tolist()
    assert Counter(labels) == dict.fromkeys(range(2000), epochs)


def test_single_element_goes_to_one_worker(serve):
    dataset = stoker.Dataset.from_tensors(np.arange(3)).distribute(serve(3).target, DYNAMIC)
    [found] = read(dataset)
    assert found.tolist() == [0, 1, 2]


def test_files_are_split_among_workers(serve, tmp_path):
    for i in range(30):
        (tmp_path / f"{i:02}.txt").write_text(str(i))
    dataset = stoker.Dataset.list_files(str(tmp_path / "*.txt")).map(
        lambda path: int(Path(path).read_text())
    )
    assert sorted(read(dataset.distribute(serve(3).target, DYNAMIC))) == list(range(30))


def test_files_created_during_an_epoch_are_not_read(serve, tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.txt").touch()
    service = serve(1)
    dataset = stoker.Dataset.list_files(str(tmp_path / "*"), shuffle=False)
    dataset = dataset.distribute(service.target, job_name="files")
    with dataset.iterator() as iterator:
        first = next(iterator)
        (tmp_path / "9.txt").touch()
        assert [first, *read(iterator)] == [str(tmp_path / f"{i}.txt") for i in range(3)]
    assert len(read(dataset)) == 4


def test_cache_before_distribute_repeats_each_element(serve):
    dataset = stoker.Dataset.range(50).map(lambda x: x).cache().repeat(3)
    assert Counter(read(dataset.distribute(serve(2).target, DYNAMIC))) == dict.fromkeys(
        range(50), 3
    )


def test_source_that_reads_from_a_service_cannot_be_split():
    inner = stoker.Dataset.range(3).distribute(ADDRESS)
    with pytest.raises(
        NotImplementedError,
        match=r"`distribute` .* cannot be split: it reads from .*"
        "Cannot create split providers for dataset of type DataServiceDataset",
    ):
        inner.distribute(ADDRESS, DYNAMIC)


def test_dynamic_epoch_ends_when_a_worker_stops(serve):
    service = serve(2)
    dataset = stoker.Dataset.range(200_000).map(lambda x: x).distribute(service.target, DYNAMIC)
    with dataset.iterator() as iterator:
        found = read(iterator, 100)
        assert eventually(lambda: all(worker.num_tasks() for worker in service.workers))
        service.workers[0].stop()
        found += read(iterator)
    counts = Counter(found)
    assert max(counts.values()) == 1
    assert set(counts) <= set(range(200_000))
    assert iterator.stats()["elements"] == len(found)


def test_off_epoch_ends_when_a_worker_stops(serve):
    service = serve(2)
    dataset = stoker.Dataset.range(200_000).apply(distribute("parallel_epochs", service.target))
    with dataset.iterator() as iterator:
        found = read(iterator, 100)
        assert eventually(lambda: all(worker.num_tasks() for worker in service.workers))
        service.workers[0].stop()
        counts = Counter(found + read(iterator))
    assert set(counts) == set(range(200_000))
    assert set(counts.values()) <= {1, 2}


def test_off_epoch_starts_anew_on_the_worker_after_the_only_one(serve):
    """The first worker had computed all elements, but not delivered them."""
    service = serve(1)
    dataset = stoker.Dataset.range(3000).apply(distribute("parallel_epochs", service.target))
    with dataset.iterator() as iterator:
        found = read(iterator, 300)
        service.workers[0].stop()
        service.add_worker()
        found += read(iterator)
    assert found[-3000:] == list(range(3000))


# ── cardinality ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (stoker.Dataset.range(0), 0),
        (stoker.Dataset.range(10).take(0), 0),
        (stoker.Dataset.range(10).repeat(), stoker.INFINITE_CARDINALITY),
        (stoker.Dataset.range(10).take(5), stoker.UNKNOWN_CARDINALITY),
        (stoker.Dataset.range(10).filter(bool), stoker.UNKNOWN_CARDINALITY),
    ],
)
def test_cardinality_holds_for_any_number_of_workers(mode, dataset, expected):
    distributed = dataset.apply(distribute(mode, ADDRESS))
    assert distributed.cardinality() == expected
    assert distributed
    if expected < 0:
        with pytest.raises(TypeError):
            len(distributed)
    else:
        assert len(distributed) == expected
    assert distributed.element_spec == dataset.element_spec


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_cardinality_of_counted_elements_is_unknown(mode):
    """Workers may be lost; under "distributed_epoch", `len` is that of an epoch without losses."""
    distributed = stoker.Dataset.range(10).apply(distribute(mode, ADDRESS))
    assert distributed.cardinality() == stoker.UNKNOWN_CARDINALITY
    if mode == "distributed_epoch":
        assert len(distributed) == 10
    else:
        with pytest.raises(TypeError, match="unknown"):
            len(distributed)


def test_from_dataset_id_learns_infinite_cardinality(serve):
    target = serve(0).target
    for dataset, expected in [
        (stoker.Dataset.range(10).repeat(), stoker.INFINITE_CARDINALITY),
        (stoker.Dataset.range(10), stoker.UNKNOWN_CARDINALITY),
        (stoker.Dataset.range(0), 0),
    ]:
        registered = register_dataset(target, dataset)
        assert from_dataset_id("parallel_epochs", target, registered).cardinality() == expected


def test_nodes_after_distribute_use_its_cardinality():
    endless = stoker.Dataset.range(10).repeat().distribute(ADDRESS)
    assert endless.take(7).cardinality() == 7
    assert endless.batch(2).cardinality() == stoker.INFINITE_CARDINALITY


# ── target_workers ───────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def in_other_process(monkeypatch):
    """Make clients look as if they ran in another process."""
    import sys

    monkeypatch.setattr(
        sys.modules["stoker.service.api.source"], "process_token", lambda: "elsewhere"
    )
    monkeypatch.setattr(
        "stoker.service.client.connections.route.process_token", lambda: "elsewhere"
    )


@pytest.mark.parametrize("tag", ["COLOCATED", "colocated"])
def test_auto_skips_remote_colocated_workers(serve, in_other_process, tag):
    service = serve(1)
    service.add_worker(worker_tags=[tag])
    dataset = stoker.Dataset.range(10).apply(distribute("parallel_epochs", service.target))
    assert read(dataset) == list(range(10))


def test_auto_reads_colocated_workers_of_its_own_process(serve):
    service = serve(1)
    service.add_worker(worker_tags=["COLOCATED"])
    dataset = stoker.Dataset.range(10).apply(distribute("parallel_epochs", service.target))
    assert Counter(read(dataset)) == dict.fromkeys(range(10), 2)


def test_any_reads_all_workers(serve, in_other_process):
    service = serve(1)
    service.add_worker(worker_tags=["COLOCATED"])
    transformation = distribute("parallel_epochs", service.target, target_workers="any")
    assert Counter(read(stoker.Dataset.range(10).apply(transformation))) == dict.fromkeys(
        range(10), 2
    )


def test_local_yields_the_same_objects(serve):
    def array_and_its_identity(i):
        array = np.full(100, i)
        return array, id(array)

    dataset = stoker.Dataset.range(3).map(array_and_its_identity)
    dataset = dataset.distribute(serve(1).target, target_workers="local")
    assert [id(array) == identity for array, identity in read(dataset)] == [True] * 3


def test_local_without_a_local_worker_is_an_error(serve, in_other_process):
    dataset = stoker.Dataset.range(3).distribute(serve(1).target, target_workers="LOCAL")
    with pytest.raises(InvalidArgumentError, match=r"Local reads require local tf\.data workers"):
        read(dataset)


@pytest.mark.parametrize("tags", [[""], ["a", ""]])
def test_empty_worker_tag_is_refused(tags):
    for error in (ValueError, RuntimeError):
        with pytest.raises(error, match="Worker tags cannot be empty"):
            stoker.service.WorkerConfig(dispatcher_address=ADDRESS, worker_tags=tags)


def test_remote_client_reads_over_tcp(serve, in_other_process):
    target = serve(2).target
    dataset = stoker.Dataset.range(100).map(lambda x: np.full(3, x)).distribute(target)
    assert sorted(int(x[0]) for x in read(dataset)) == list(range(100))


def test_dataset_by_id_is_split(serve):
    target = serve(3).target
    dataset_id = register_dataset(target, stoker.Dataset.range(100).repeat(2))
    found = read(from_dataset_id("distributed_epoch", target, dataset_id))
    assert Counter(found) == dict.fromkeys(range(100), 2)
