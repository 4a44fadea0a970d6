"""save and load: a dataset in a folder."""

import errno
import re
import subprocess
import sys
import textwrap
import threading
from collections import Counter, namedtuple
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import stoker
from stoker.dataset.formats import elements_file, store
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context, number
from stoker.dataset.tree.splits import IndexSplits
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.elements.common_spec import ObservedSpec
from stoker.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from stoker.service import distribute
from tests.dataset.splits import ScriptedSplits
from tests.serving import Service, read

Point = namedtuple("Point", "x y")  # noqa: PYI024


@pytest.fixture
def folder(tmp_path) -> str:
    return str(tmp_path / "saved")


@pytest.fixture
def small(monkeypatch) -> None:
    """Ten elements in a record, a new file after about two records."""
    monkeypatch.setattr(elements_file, "RECORD_ELEMENTS", 10)
    monkeypatch.setattr(store, "FILE_BYTES", 300)


def names(folder: str) -> list[str]:
    """Return the files of a folder, with R for the run that wrote them."""
    if not Path(folder).exists():
        return []
    return sorted(re.sub("^[0-9a-f]{12}-", "R-", path.name) for path in Path(folder).iterdir())


def test_saved_elements_are_loaded_in_order(folder):
    stoker.Dataset.range(10).map(lambda x: (x, str(x))).save(folder)
    loaded = stoker.Dataset.load(folder)
    for _ in range(2):
        assert list(loaded) == [(x, str(x)) for x in range(10)]
    assert names(folder) == ["R-00000.elements", "stoker.json"]


def test_spec_and_cardinality_are_known_without_reading(folder):
    saved = stoker.Dataset.range(10).batch(4)
    saved.save(folder)
    for path in Path(folder).rglob("*.elements"):
        path.unlink()
    loaded = stoker.Dataset.load(Path(folder))
    assert loaded.element_spec == saved.element_spec
    assert (loaded.cardinality(), len(loaded)) == (3, 3)
    with pytest.raises(NotFoundError, match="was removed: the folder was deleted or written anew"):
        list(loaded)


def test_an_undeclared_spec_is_observed_while_saving(folder):
    dataset = stoker.Dataset.range(3).map(lambda x: {"a": np.zeros((x, 2)), "b": (x, "text")})
    assert dataset.element_spec == stoker.UnknownSpec()
    dataset.save(folder)
    assert stoker.Dataset.load(folder).element_spec == {
        "a": stoker.TensorSpec((None, 2), np.float64),
        "b": (stoker.TensorSpec((), np.int64), stoker.TensorSpec((), object)),
    }


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ([1, 2, 3], stoker.TensorSpec((), np.int64)),
        ([1, 2.5, 3], stoker.UnknownSpec()),
        ([(1, 2), (1, 2.5)], (stoker.TensorSpec((), np.int64), stoker.UnknownSpec())),
        ([(1, 2), (1, 2, 3)], stoker.UnknownSpec()),
        ([{"a": 1}, {"b": 1}], stoker.UnknownSpec()),
        ([{"a": (1,)}, {"a": 1}], {"a": stoker.UnknownSpec()}),
        ([np.zeros(2), np.zeros((2, 2))], stoker.UnknownSpec()),
        ([], stoker.UnknownSpec()),
    ],
)
def test_the_observed_spec_covers_all_elements(elements, expected):
    observed = ObservedSpec(stoker.UnknownSpec())
    for element in elements:
        observed.add(element)
    assert observed.spec == expected


def test_an_empty_dataset_is_saved_and_loaded(folder):
    stoker.Dataset.range(0).save(folder)
    assert list(stoker.Dataset.load(folder)) == []
    assert stoker.Dataset.load(folder).cardinality() == 0


def test_many_elements_take_several_files(folder, small):
    stoker.Dataset.range(300).save(folder)
    assert len(names(folder)) > 5
    assert list(stoker.Dataset.load(folder)) == list(range(300))


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_files_are_smaller(folder, compression):
    dataset = stoker.Dataset.range(20).map(lambda x: np.zeros(1000))
    sizes = []
    for codec in (None, compression):
        dataset.save(folder, compression=codec)
        sizes.append(sum(p.stat().st_size for p in Path(folder).rglob("*.elements")))
        found = list(stoker.Dataset.load(folder))
        assert np.array_equal(found, np.zeros((20, 1000)))
        found[0][0] = 1  # writable
    assert sizes[1] < sizes[0] / 10


def test_shard_func_chooses_the_file(folder):
    stoker.Dataset.range(7).map(lambda x: (x, x * x)).save(
        folder, shard_func=lambda x, _: int(x % 3)
    )
    assert len(names(folder)) == 4
    assert [x for x, _ in stoker.Dataset.load(folder)] == [0, 3, 6, 1, 4, 2, 5]


def test_reader_func_chooses_the_order_of_files(folder):
    stoker.Dataset.range(6).save(folder, shard_func=lambda x: x % 2)

    def reader(datasets: stoker.Dataset) -> stoker.Dataset:
        return datasets.skip(1).flat_map(lambda dataset: dataset)

    assert list(stoker.Dataset.load(folder, reader_func=reader)) == [1, 3, 5]
    with pytest.raises(InvalidArgumentError, match="`reader_func` must return a Dataset; got 7"):
        stoker.Dataset.load(folder, reader_func=lambda _: 7)  # type: ignore[arg-type,return-value]


def test_namedtuples_have_the_class_of_the_element_spec(folder):
    stoker.Dataset.range(2).map(lambda x: Point(x, -x)).save(folder)
    assert type(next(iter(stoker.Dataset.load(folder)))).__name__ == "Point"
    spec = Point(stoker.TensorSpec((), "int64"), stoker.UnknownSpec())
    loaded = stoker.Dataset.load(folder, element_spec=spec)
    assert loaded.element_spec == spec
    [first, _] = loaded
    assert type(first) is Point


def test_a_wrong_element_spec_is_refused(folder):
    stoker.Dataset.range(2).save(folder)
    with pytest.raises(InvalidArgumentError, match="must agree with what was saved"):
        stoker.Dataset.load(folder, element_spec=stoker.TensorSpec((3,), "float32"))


def test_skipping_reads_one_record(folder, small, monkeypatch):
    stoker.Dataset.range(1000).save(folder)
    records: list[int] = []
    read_record = elements_file.ElementsFile.read

    def counted(file: elements_file.ElementsFile, record: int) -> list[Any]:
        records.append(record)
        return read_record(file, record)

    monkeypatch.setattr(elements_file.ElementsFile, "read", counted)
    loaded = stoker.Dataset.load(folder)
    assert next(iter(loaded.skip(777))) == 777
    assert len(records) == 1
    state = loaded.iterator().state_dict()
    assert state["position"] == 0


def test_saving_again_replaces_the_store(folder):
    stoker.Dataset.range(3).save(folder)
    before = stoker.Dataset.load(folder)
    stoker.Dataset.range(5).save(folder)
    assert list(stoker.Dataset.load(folder)) == list(range(5))
    assert names(folder) == ["R-00000.elements", "stoker.json"]
    with pytest.raises(NotFoundError, match="load it again"):
        list(before)


def test_a_failed_save_leaves_the_earlier_store(folder):
    stoker.Dataset.range(3).save(folder)
    with pytest.raises(ZeroDivisionError):
        stoker.Dataset.range(5).map(lambda x: 1 // (x - 4)).save(folder)
    with pytest.raises(InvalidArgumentError, match="is a object, which cannot be serialized"):
        stoker.Dataset.range(5).map(lambda x: object()).save(folder)
    assert list(stoker.Dataset.load(folder)) == [0, 1, 2]
    assert names(folder) == ["R-00000.elements", "stoker.json"]


@pytest.mark.parametrize("result", [-1, 1.5, "one", None])
def test_a_wrong_result_of_shard_func_is_an_error(folder, result):
    with pytest.raises(InvalidArgumentError, match="`shard_func` must return an int") as raised:
        stoker.Dataset.range(5).save(folder, shard_func=lambda x: 0 if x < 3 else result)
    assert "raised in `save` (tests/dataset/nodes/test_save.py:" in raised.value.__notes__[0]
    assert "at element 3" in raised.value.__notes__[0]


def test_a_full_disk_is_an_error_that_names_the_folder(folder, monkeypatch):
    def full(self: Any, pieces: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(elements_file.ElementsWriter, "_write", full)
    with pytest.raises(OSError, match="No space left on device: what was written") as raised:
        stoker.Dataset.range(3).save(folder)
    assert raised.value.filename == folder
    assert names(folder) == []


def test_two_saves_to_one_folder_are_an_error(folder):
    begun, go_on = threading.Event(), threading.Event()

    def function(x: int) -> int:
        begun.set()
        go_on.wait(10)
        return x

    first = threading.Thread(
        target=lambda: stoker.Dataset.range(3).map(function).save(folder),
    )
    first.start()
    assert begun.wait(10)
    with pytest.raises(FailedPreconditionError, match="another process or iterator is writing"):
        stoker.Dataset.range(5).save(folder)
    with pytest.raises(NotFoundError, match="has no saved dataset"):
        stoker.Dataset.load(folder)
    go_on.set()
    first.join()
    assert list(stoker.Dataset.load(folder)) == [0, 1, 2]


def test_a_killed_process_leaves_no_store(folder):
    script = f"""
        import os, signal, stoker
        def function(x):
            if x == 50_000:
                os.kill(os.getpid(), signal.SIGKILL)
            return x
        stoker.Dataset.range(100_000).map(function).save({folder!r})
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=50)
    assert killed.returncode == -9
    assert names(folder) == ["R-00000.elements", "stoker.lock"]
    with pytest.raises(NotFoundError):
        stoker.Dataset.load(folder)
    stoker.Dataset.range(3).save(folder)
    assert names(folder) == ["R-00000.elements", "stoker.json"]


def test_a_description_damaged_anywhere_is_an_error(folder):
    stoker.Dataset.range(3).save(folder)
    path = Path(folder, "stoker.json")
    whole = path.read_bytes()
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1
        for data in (whole[:position], flipped):
            path.write_bytes(data)
            with pytest.raises(DataLossError, match=r"stoker.json is damaged"):
                stoker.Dataset.load(folder)


def test_a_description_of_a_newer_version_says_so(folder, monkeypatch):
    monkeypatch.setattr(store, "VERSION", 9)
    stoker.Dataset.range(3).save(folder)
    monkeypatch.undo()
    with pytest.raises(FailedPreconditionError, match="has version 9; this stoker reads up to 1"):
        stoker.Dataset.load(folder)


def test_a_damaged_file_costs_its_own_elements_only(folder, small):
    stoker.Dataset.range(100).save(folder)
    path = max(Path(folder).rglob("*.elements"))
    path.write_bytes(path.read_bytes()[:-1])
    with stoker.Dataset.load(folder).ignore_errors().iterator() as iterator:
        found = list(iterator)
        assert found == list(range(len(found)))
        assert 0 < len(found) < 100
        assert iterator.stats()["errors_ignored"] == 100 - len(found)


def test_fsspec_writes_and_reads_a_url():
    url = "memory://bucket/saved"
    stoker.Dataset.range(10).save(url, shard_func=lambda x: x // 5)
    assert list(stoker.Dataset.load(url)) == list(range(10))
    stoker.Dataset.range(3).save(url)
    assert list(stoker.Dataset.load(url)) == list(range(3))
    files = fsspec.filesystem("memory").find("/bucket/saved")
    assert len(files) == 2
    with pytest.raises(ZeroDivisionError):
        stoker.Dataset.range(3).map(lambda x: 1 // (x - 2)).save(url)
    assert fsspec.filesystem("memory").find("/bucket/saved") == files
    with pytest.raises(NotFoundError):
        stoker.Dataset.load("memory://bucket/nothing")


@pytest.mark.parametrize("path", ["", None, 3, b"x"])
def test_wrong_paths_are_refused(path):
    with pytest.raises(InvalidArgumentError, match="`path` must be a path"):
        stoker.Dataset.range(1).save(path)
    with pytest.raises(InvalidArgumentError, match="`path` must be a path"):
        stoker.Dataset.load(path)


def test_other_wrong_arguments_are_refused(folder):
    dataset = stoker.Dataset.range(1)
    with pytest.raises(UnimplementedError, match="`checkpoint_args` are not supported"):
        dataset.save(folder, checkpoint_args={})
    with pytest.raises(InvalidArgumentError, match="Invalid `compression` argument: 'SNAPPY'"):
        dataset.save(folder, compression="SNAPPY")
    with pytest.raises(InvalidArgumentError, match="`shard_func` must be a function"):
        dataset.save(folder, shard_func=3)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="has no saved dataset"):
        stoker.Dataset.load(folder)


# ── splits ───────────────────────────────────────────────────────────────────────────────────────
def test_load_is_an_index_source(folder, small):
    stoker.Dataset.range(100).save(folder)
    node = decode_tree(encode_tree(stoker.Dataset.load(folder).node))
    assert node.splits() == IndexSplits(100)
    splits = ScriptedSplits({number(node)[node]: [[(95, 100), (0, 3)], [(50, 52)]]})
    for expected in ([95, 96, 97, 98, 99, 0, 1, 2], [50, 51], []):
        stream = open_stream(node, Context(splits=splits))
        found = []
        while chunk := stream.next_chunk(100, 1 << 20):
            found += chunk
        assert found == expected
        stream.close()


def test_workers_read_each_element_once(folder, small):
    stoker.Dataset.range(1000).save(folder)
    with Service(2) as service:
        dataset = stoker.Dataset.load(folder).map(lambda x: x)
        twice = dict.fromkeys(range(1000), 2)
        dynamic = dataset.repeat(2).distribute(service.target, processing_mode="distributed_epoch")
        assert Counter(read(dynamic)) == twice
        off = dataset.apply(distribute("parallel_epochs", service.target))
        assert Counter(read(off)) == twice
