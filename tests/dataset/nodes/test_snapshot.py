"""snapshot: the first whole epoch of each pipeline is kept in its own folder."""

import errno
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import pytest

import stoker
from stoker.dataset.formats import elements_file
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context, number
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import InvalidArgumentError
from stoker.service import distribute
from tests.dataset.splits import ScriptedSplits
from tests.serving import Service, read


class Counted:
    """A function x -> -x that counts its calls."""

    def __init__(self, fails: int = -1) -> None:
        self.calls = 0
        self.fails = fails

    def __call__(self, x: int) -> int:
        self.calls += 1
        if x == self.fails:
            raise ValueError(x)
        return -x


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "snapshots")


def files(path: str) -> int:
    return len([file for file in Path(path).rglob("*") if file.is_file()])


def negative(n: int) -> list[int]:
    return [-x for x in range(n)]


@pytest.mark.parametrize("compression", ["AUTO", None, "", "GZIP", "ZLIB"])
def test_later_epochs_compute_nothing(path, compression):
    function = Counted()
    dataset = stoker.Dataset.range(10).map(function).snapshot(path, compression=compression)
    for _ in range(3):
        assert list(dataset) == negative(10)
    again = stoker.Dataset.range(10).map(function).snapshot(path)
    assert list(stoker.Dataset(decode_tree(encode_tree(again.node)))) == negative(10)
    assert list(again.repeat(2).skip(9)) == negative(10)[9:] + negative(10)
    assert function.calls == 10
    assert files(path) == 2


def test_another_pipeline_writes_beside_it(path):
    function = Counted()
    for _ in range(2):
        assert list(stoker.Dataset.range(3).map(function).snapshot(path)) == negative(3)
        assert list(stoker.Dataset.range(4).map(function).snapshot(path)) == negative(4)
    assert function.calls == 7
    assert len(list(Path(path).iterdir())) == 2


def test_each_given_seed_has_its_own_folder(path):
    def dataset(seed: int) -> stoker.Dataset:
        shuffled = stoker.Dataset.range(30).shuffle(30).snapshot(path)
        return shuffled.with_options(stoker.Options(seed=seed))

    first, second = list(dataset(1)), list(dataset(2))
    assert first != second
    assert list(dataset(1)) == first
    assert list(dataset(2)) == second
    unseeded = list(stoker.Dataset.range(30).shuffle(30).snapshot(path))
    assert list(stoker.Dataset.range(30).shuffle(30).snapshot(path)) == unseeded


def test_an_epoch_not_read_whole_keeps_nothing(path, caplog):
    function = Counted(fails=3)
    dataset = stoker.Dataset.range(4).map(function).snapshot(path)
    with dataset.iterator() as iterator:
        next(iterator)
    assert list(dataset.skip(1).take(2)) == [-1, -2]
    with dataset.iterator() as iterator:
        assert [next(iterator) for _ in range(3)] == negative(3)
        with pytest.raises(ValueError, match="3"):
            next(iterator)
        assert list(iterator) == []
    assert files(path) == 0
    assert "keeps nothing of this epoch: an element failed with ValueError: 3" in caplog.text


def test_while_one_epoch_writes_another_only_reads(path):
    function = Counted()
    dataset = stoker.Dataset.range(3).map(function).snapshot(path)
    with dataset.iterator() as writer:
        next(writer)
        assert list(dataset) == negative(3)
        assert list(writer) == negative(3)[1:]
    assert function.calls == 6
    assert list(dataset) == negative(3)
    assert function.calls == 6


def test_shard_func_chooses_files_that_reader_func_reads(path):
    calls: list[int] = []

    def reader(datasets: stoker.Dataset) -> stoker.Dataset:
        calls.append(1)
        return datasets.shuffle(3, seed=1).flat_map(lambda dataset: dataset)

    dataset = stoker.Dataset.range(9).snapshot(path, shard_func=lambda x: x % 3, reader_func=reader)
    assert list(dataset) == list(range(9))
    assert calls == []
    found = list(dataset)
    assert sorted(found) == list(range(9))
    assert all(found[i + 1] == found[i] + 3 for i in range(8) if i % 3 != 2)
    plain = stoker.Dataset.range(9).snapshot(path)
    assert list(plain) == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_a_reader_func_that_returns_no_dataset_is_an_error(path):
    dataset = stoker.Dataset.range(3).snapshot(path, reader_func=lambda _: 7)  # type: ignore[arg-type,return-value]
    list(dataset)
    with pytest.raises(InvalidArgumentError, match="function of snapshot must return a Dataset"):
        list(dataset)


def test_a_failing_shard_func_loses_no_element(path):
    dataset = stoker.Dataset.range(4).snapshot(path, shard_func=lambda x: 1 // (x - 2) and 0)
    found: list[Any] = []
    with dataset.iterator() as iterator:
        while len(found) < 5:
            try:
                found.append(next(iterator))
            except (InvalidArgumentError, ZeroDivisionError) as error:
                found.append(type(error).__name__)
        assert next(iterator, "end") == "end"
    assert found == [0, 1, "ZeroDivisionError", 2, 3]
    assert files(path) == 0


def test_a_full_disk_raises_once_and_loses_no_element(path, monkeypatch):
    def full(self: Any, elements: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(elements_file.ElementsWriter, "_write_elements", full)
    with stoker.Dataset.range(3).snapshot(path).iterator() as iterator:
        assert [next(iterator) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(OSError, match="No space left on device: what was written"):
            next(iterator)
        assert list(iterator) == []
    assert files(path) == 0


def test_tuning_arguments_are_not_in_the_fingerprint(path):
    for calls in (1, 2, stoker.AUTOTUNE):
        dataset = stoker.Dataset.range(9).map(str, num_parallel_calls=calls).snapshot(path)
        assert list(dataset) == [str(x) for x in range(9)]
    assert len(list(Path(path).iterdir())) == 1


def test_racing_threads_read_the_whole_dataset(path):
    barrier = threading.Barrier(4)
    results: list[list[int]] = []

    def run() -> None:
        dataset = stoker.Dataset.range(10_000).snapshot(path)
        barrier.wait(10)
        for _ in range(2):
            results.append(list(dataset))  # noqa: PERF401

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(result == list(range(10_000)) for result in results)
    assert files(path) == 2


def test_fsspec_writes_and_reads_a_url():
    function = Counted()
    dataset = stoker.Dataset.range(5).map(function).snapshot("memory://bucket/snapshots")
    assert list(dataset) == list(dataset) == negative(5)
    assert function.calls == 5


def test_the_first_of_two_writers_to_a_url_stays():
    url = "memory://bucket/two"
    dataset = stoker.Dataset.range(5).snapshot(url)
    with dataset.iterator() as first, dataset.iterator() as second:
        assert next(first) == next(second) == 0
        list(first)
        reading = dataset.iterator()
        assert next(reading) == 0
        list(second)
        assert list(reading) == list(range(1, 5))
    assert len(fsspec.filesystem("memory").find("/bucket/two")) == 2


def test_spec_cardinality_and_arguments(path):
    dataset = stoker.Dataset.range(7).batch(2)
    kept = dataset.snapshot(path)
    assert kept.element_spec == dataset.element_spec
    assert kept.cardinality() == 4
    with pytest.raises(InvalidArgumentError, match="`path` must be a path"):
        dataset.snapshot("")
    with pytest.raises(InvalidArgumentError, match="Invalid `compression` argument: 'SNAPPY'"):
        dataset.snapshot(path, compression="SNAPPY")
    with pytest.raises(InvalidArgumentError, match="`reader_func` must be a function"):
        dataset.snapshot(path, reader_func=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="`shard_func` must be a function"):
        dataset.snapshot(path, shard_func=3)  # type: ignore[arg-type]


def test_splits_of_a_service_are_not_kept(path):
    node = stoker.Dataset.range(10).snapshot(path).node
    list(stoker.Dataset(node))
    splits = ScriptedSplits({0: [[(3, 5)], [(7, 9)]]})
    for expected in ([3, 4], [7, 8]):
        stream = open_stream(node, Context(splits=splits, numbers=number(node)))
        found = []
        while chunk := stream.next_chunk(100, 1 << 20):
            found += chunk
        assert found == expected
        stream.close()


def test_workers_that_read_everything_share_one_store(path):
    dataset = stoker.Dataset.range(100).snapshot(path)
    with Service(2) as service:
        once = dict.fromkeys(range(100), 1)
        twice = dict.fromkeys(range(100), 2)
        dynamic = dataset.distribute(service.target, processing_mode="distributed_epoch")
        assert Counter(read(dynamic)) == once
        assert files(path) == 0
        for _ in range(2):
            off = dataset.apply(distribute("parallel_epochs", service.target))
            assert Counter(read(off)) == twice
            assert files(path) == 2
