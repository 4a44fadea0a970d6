"""BEHAVIOUR.md, Sharding: under DYNAMIC several workers read parts of one file."""

import os
from collections import Counter, defaultdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import Dataset, TFRecordWriter
from stoker.dataset.formats import parts
from stoker.errors import DataLossError
from stoker.service import DispatchServer
from tests.serving import eventually, iterator_with_deadline, read

DYNAMIC = "distributed_epoch"
LINES = 50_000
"""Of 16 bytes each: 800 KB, which are 64 parts."""


def _text(folder: Path) -> Dataset:
    path = folder / "text"
    path.write_bytes(b"".join(b"%014d\r\n" % i for i in range(LINES)))
    return Dataset.text_lines(path, encoding=None)


def _fixed(folder: Path) -> Dataset:
    path = folder / "fixed"
    path.write_bytes(b"header" + b"".join(b"%016d" % i for i in range(LINES)) + b"footer")
    return Dataset.fixed_length_records(path, 16, 6, 6)


def _tfrecords(folder: Path) -> Dataset:
    with TFRecordWriter(folder / "records") as writer:
        for i in range(LINES):
            writer.write(b"%d" % i)
    return Dataset.tfrecords(folder / "records")


def _with_process(folder: Path, batch: list[bytes]) -> tuple[int, list[int]]:
    """Return the process that reads the batch, and the batch; wait until two processes read."""
    (folder / str(os.getpid())).touch()
    assert eventually(lambda: len(list(folder.iterdir())) > 1)
    return os.getpid(), [int(record) for record in batch]


@pytest.mark.parametrize("make", [_text, _fixed, _tfrecords])
def test_two_processes_read_one_file(tmp_path, make):
    processes = tmp_path / "processes"
    processes.mkdir()
    dataset = make(tmp_path).batch(100).map(partial(_with_process, processes))
    found: defaultdict[int, list[int]] = defaultdict(list)
    with stoker.LocalCluster(2) as cluster:
        for process, records in read(dataset.distribute(cluster, DYNAMIC)):
            found[int(process)] += list(records)
    assert len(found) == 2
    assert min(map(len, found.values())) > 0
    assert sorted(chain(*found.values())) == list(range(LINES))


def _read_with_errors(dataset: Dataset) -> tuple[list[Any], list[str]]:
    """Return the elements, and the errors that are DataLossErrors."""
    elements, errors = [], []
    with iterator_with_deadline(dataset) as iterator:
        while True:
            try:
                elements.append(next(iterator))
            except DataLossError as error:
                errors.append(str(error))
            except StopIteration:
                return elements, errors


@pytest.fixture
def _small(monkeypatch):
    """Parts of 100 bytes, for workers in this process."""
    monkeypatch.setattr(parts, "part_bytes_of", lambda total: 100)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_epoch_reads_each_part_of_each_file(serve, tmp_path, shuffle):
    for file in range(4):
        path = tmp_path / f"caf\udce9 {file}.txt"
        path.write_text("".join(f"{file}/{i}\n" for i in range(20 * 5**file)))
    dataset = Dataset.text_lines(Dataset.list_files(f"{tmp_path}/*.txt", shuffle=shuffle))
    dataset = dataset.repeat(3).distribute(serve(3).target, DYNAMIC)
    expected = {f"{file}/{i}": 3 for file in range(4) for i in range(20 * 5**file)}
    for _ in range(2):
        assert Counter(read(dataset)) == expected


@pytest.mark.usefixtures("_small")
def test_each_part_is_read_once_over_a_dispatcher_restart(serve, tmp_path):
    journal: dict[str, Any] = {"work_dir": str(tmp_path / "journal"), "fault_tolerant_mode": True}
    path = tmp_path / "caf\udce9"
    path.write_text("".join(f"{i}\n" for i in range(5_000)))
    service = serve(2, **journal, worker={"buffer_bytes": 1000})
    dataset = Dataset.text_lines(path).distribute(
        service.target, DYNAMIC, max_outstanding_requests=10
    )
    with dataset.iterator() as iterator:
        found = read(iterator, 1000)
        port = service.address[1]
        service.dispatcher.stop()
        service.dispatcher = service.enter_context(DispatchServer(port=port, **journal))
        found += read(iterator)
        assert iterator.stats()["splits_lost"] == 0
    assert sorted(map(int, found)) == list(range(5_000))


@pytest.mark.usefixtures("_small")
def test_one_worker_reads_the_parts_in_order(serve, tmp_path):
    lines = [f"line {i}" for i in range(1000)]
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for path, start, stop in zip(paths, (0, 300, 310), (300, 310, 1000), strict=True):
        path.write_text("\n".join(lines[start:stop]))
    dataset = Dataset.text_lines(paths).enumerate().distribute(serve(1).target, DYNAMIC)
    assert read(dataset) == list(enumerate(lines))


@pytest.mark.usefixtures("_small")
def test_file_that_grows_is_an_error_of_its_other_parts(serve, tmp_path):
    path = tmp_path / "log"
    path.write_text("0123456789ABCDE\n" * 1_000)

    def append(line: str) -> str:
        if path.stat().st_size == 16_000:
            with path.open("a") as file:
                file.write("\n")
        return line

    dataset = Dataset.text_lines(path).map(append).distribute(serve(2).target, DYNAMIC)
    found, errors = _read_with_errors(dataset)
    for error in errors:
        assert "log has changed: it had 16000 bytes when its parts were listed" in error
    lost = 1_000 - len(found)
    # A part of 100 bytes has six or seven lines.
    assert 0 < lost <= 1_000 - 6
    assert lost / 7 <= len(errors) <= lost / 6


@pytest.mark.usefixtures("_small")
def test_damaged_tfrecord_file_is_read_up_to_the_damage(serve, tmp_path):
    path = tmp_path / "records"
    with TFRecordWriter(path) as writer:
        for i in range(100):
            writer.write(b"%04d" % i)  # 20 bytes
    data = bytearray(path.read_bytes())
    data[20 * 47] ^= 1  # the length of record 47
    data[20 * 12 + 13] ^= 1  # the data of record 12
    path.write_bytes(data)
    found, errors = _read_with_errors(Dataset.tfrecords(path).distribute(serve(2).target, DYNAMIC))
    assert sorted(map(int, found)) == [i for i in range(47) if i != 12]
    assert sorted(error.partition("records: ")[2][:50] for error in errors) == [
        "record 2 after byte 200 at byte 240 is corrupt: th",
        "record 2 after byte 900 at byte 940 is corrupt, or",
    ]


@pytest.mark.usefixtures("_small")
def test_parallel_epochs_read_whole_files(serve, tmp_path, monkeypatch):
    (tmp_path / "a").write_text("line\n" * 1000)
    monkeypatch.setattr(parts, "list_parts", None)
    dataset = Dataset.text_lines(tmp_path / "a")
    service = serve(2)
    found = read(dataset.distribute(service.target, processing_mode="parallel_epochs"))
    assert len(found) == 2000
