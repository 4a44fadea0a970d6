"""Records of files, read one after the other, interleaved, and shared among workers."""

import os
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset
from stoker.dataset.formats import counts, opening
from stoker.dataset.formats.opening import open_buffer
from stoker.dataset.nodes import records as records_node
from stoker.dataset.tree.node import Context, number
from stoker.dataset.tree.splits import IndexSplits, ListedSplits
from stoker.dataset.tree.structure import source_summary
from stoker.elements.spec import TensorSpec
from stoker.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
)
from stoker.service import distribute
from tests.dataset.splits import ScriptedSplits
from tests.dataset.verbs import check_verbs, opened, positions, tape
from tests.serving import Service, read

LINES = [["a0", "a1", "a2"], [], ["c0"], ["d0", "d1"], ["e0", "e1", "e2", "e3"]]
ALL = [line for lines in LINES for line in lines]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Files with `LINES`, old enough for their counts to be kept."""
    paths = [tmp_path / f"{letter}.txt" for letter in "abcde"]
    for path, lines in zip(paths, LINES, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
        os.utime(path, (1e9, 1e9))
    return [str(path) for path in paths]


def test_files_are_read_one_after_the_other(files: list[str]) -> None:
    assert check_verbs(lambda: Dataset.text_lines(files)) == ALL


def test_filenames_may_be_a_path_a_list_or_a_dataset(files: list[str], tmp_path: Path) -> None:
    last = Path(files[4])
    for filenames in (
        last,
        str(last),
        os.fsencode(last),
        [last],
        (str(last),),
        iter([last]),
        Dataset.from_tensors(str(last)),
        Dataset.from_tensors(os.fsencode(last)),
        Dataset.list_files(f"{tmp_path}/e.*"),
        Dataset.range(1).map(lambda _: last),
    ):
        assert list(Dataset.text_lines(filenames)) == LINES[4]
    assert list(Dataset.text_lines([])) == []
    assert Dataset.text_lines([]).cardinality() == 0


def test_nested_filenames_are_read_in_order(files: list[str]) -> None:
    nested: list[Any] = [
        [files[:2], (files[2], Path(files[3])), [], [[files[4]]]],
        np.array(files),
        np.array(files, object).reshape(len(files), 1),
        (path for path in files),
        dict.fromkeys(files).keys(),
    ]
    for filenames in nested:
        assert list(Dataset.text_lines(filenames)) == ALL
    assert list(Dataset.text_lines(np.array(files[4]))) == LINES[4]


MANY: list[tuple[str, Callable[[Any], Any]]] = [
    ("text_lines", Dataset.text_lines),
    ("tfrecords", Dataset.tfrecords),
    ("fixed_length_records", lambda names: Dataset.fixed_length_records(names, 4)),
    ("csv", lambda names: Dataset.csv(names, [str])),
    ("parallel", lambda names: Dataset.text_lines(names, num_parallel_reads=2)),
]


@pytest.mark.parametrize("read", [read for _, read in MANY], ids=[name for name, _ in MANY])
@pytest.mark.parametrize(
    "filenames",
    [
        None,
        5,
        [5],
        ["a", None],
        {"a": "b"},
        {"a"},
        [Dataset.from_tensors("a")],
        np.arange(3),
        Dataset.range(3),
        Dataset.from_tensors(["a", "b"]),
        Dataset.from_tensors(("a", "b")),
        Dataset.from_tensors({"x": "a"}),
        Dataset.from_tensor_slices(["a", "b"]).batch(2),
    ],
    ids=str,
)
def test_what_cannot_be_filenames_is_refused_when_made(
    read: Callable[[Any], Any], filenames: Any
) -> None:
    with pytest.raises(InvalidTypeError, match="`filenames` must be a path, a list of paths or a"):
        read(filenames)


def test_options_of_the_filenames_dataset_are_kept(files: list[str]) -> None:
    paths = Dataset.from_tensor_slices(files).with_options(stoker.Options(seed=5))
    assert Dataset.text_lines(paths).options().seed == 5
    assert Dataset.text_lines(paths, num_parallel_reads=2).options().seed == 5


def test_each_epoch_reads_the_files_again(files: list[str]) -> None:
    dataset = Dataset.text_lines(files[:1])
    assert list(dataset.repeat(2)) == 2 * LINES[0]
    Path(files[0]).write_text("changed")
    assert list(dataset) == ["changed"]
    assert list(pickle.loads(pickle.dumps(dataset))) == ["changed"]


def test_invalid_arguments_raise_at_construction() -> None:
    for filenames in ("", ["a", ""], [["a"], [""]]):
        with pytest.raises(InvalidArgumentError, match="`filenames` must not contain an empty"):
            Dataset.text_lines(filenames)
    for compression in ("gzip", "BZIP2", 5, b"GZIP"):
        with pytest.raises(InvalidArgumentError, match="`compression_type` must be"):
            Dataset.tfrecords("a", compression)  # type: ignore[arg-type]
    for reads in (0, -2, 1.5, "2", True):
        with pytest.raises(InvalidArgumentError, match="`num_parallel_reads` must be"):
            Dataset.tfrecords("a", num_parallel_reads=reads)  # type: ignore[arg-type]


def test_unreadable_file_is_one_error_before_the_next_file(files: list[str]) -> None:
    paths = [files[2], "/no/such", files[3], 5, files[4], files[2]]
    dataset = Dataset.range(6).map(lambda i: paths[i])
    found = check_verbs(lambda: Dataset.text_lines(dataset))
    assert found[1][1] == NotFoundError.__name__
    assert "/no/such does not exist" in found[1][2]
    assert found[4][1] == InvalidArgumentError.__name__
    assert "must yield paths; it yielded 5, a value of type int" in found[4][2]
    assert found[:1] + found[2:4] + found[5:] == ["c0", "d0", "d1", *LINES[4], "c0"]


def test_errors_of_the_filenames_keep_their_positions(files: list[str]) -> None:
    def path(i: int) -> str:
        if i == 1:
            raise KeyError("no path")
        return files[i]

    found = check_verbs(lambda: Dataset.text_lines(Dataset.range(3).map(path)))
    assert [position[1] if position[0] == "raised" else position for position in found] == [
        "a0", "a1", "a2", "KeyError", "c0",
    ]  # fmt: skip


def test_errors_can_be_ignored(files: list[str]) -> None:
    dataset = Dataset.text_lines([files[2], "/no/such", files[3]]).ignore_errors()
    assert list(dataset) == ["c0", "d0", "d1"]


# As TextLineDataset(files, num_parallel_reads=n) in tf.data 2.21.
INTERLEAVED = {
    1: ["a0", "a1", "a2", "c0", "d0", "d1", "e0", "e1", "e2", "e3"],
    2: ["a0", "a1", "c0", "a2", "d0", "e0", "d1", "e1", "e2", "e3"],
    3: ["a0", "c0", "a1", "d0", "a2", "d1", "e0", "e1", "e2", "e3"],
}


@pytest.mark.parametrize("reads", [1, 2, 3, 8, stoker.AUTOTUNE])
def test_num_parallel_reads_interleaves_the_files(files: list[str], reads: int) -> None:
    found = check_verbs(lambda: Dataset.text_lines(files, num_parallel_reads=reads))
    assert found == INTERLEAVED.get(reads, found)
    assert Counter(found) == Counter(ALL)
    dataset = Dataset.text_lines(files, num_parallel_reads=reads)
    assert dataset.element_spec == TensorSpec((), object)


@pytest.mark.parametrize("reads", [2, 5])
def test_parallel_reads_keep_the_positions_of_errors(files: list[str], reads: int) -> None:
    paths = [files[0], "/no/such", files[2], files[3]]
    found = check_verbs(lambda: Dataset.text_lines(paths, num_parallel_reads=reads))
    assert sorted(p for p in found if isinstance(p, str)) == ["a0", "a1", "a2", "c0", "d0", "d1"]
    assert [p[1] for p in found if isinstance(p, tuple)] == [NotFoundError.__name__]


def test_all_formats_can_be_read_in_parallel(files: list[str], tmp_path: Path) -> None:
    for name in ("x", "y"):
        with stoker.TFRecordWriter(tmp_path / name) as writer:
            for n in range(3):
                writer.write(f"{name}{n}".encode())
    written = [tmp_path / "x", tmp_path / "y"]
    turns = [b"x0", b"y0", b"x1", b"y1", b"x2", b"y2"]
    assert list(Dataset.tfrecords(written, None, 2)) == turns
    fixed = Dataset.fixed_length_records(files[3:], 3, num_parallel_reads=2)
    assert list(fixed) == [b"d0\n", b"e0\n", b"d1\n", b"e1\n", b"e2\n", b"e3\n"]


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files opened, in order."""
    found: list[str] = []

    def noted(path: str, compression: str) -> opening.FileBuffer:
        found.append(Path(path).stem)
        return open_buffer(path, compression)

    monkeypatch.setattr(records_node, "open_buffer", noted)
    return found


def test_files_with_known_counts_are_skipped_unopened(files: list[str], opens: list[str]) -> None:
    dataset = Dataset.text_lines(files)
    assert list(dataset.skip(2)) == ALL[2:]
    opens.clear()
    assert list(dataset.skip(6)) == LINES[4]
    assert opens == ["e"]
    opens.clear()
    assert list(dataset.skip(5)) == ["d1", *LINES[4]]
    assert opens == ["d", "e"]


def test_skipped_files_are_counted_too(files: list[str], opens: list[str]) -> None:
    dataset = Dataset.text_lines(files)
    assert list(dataset.skip(8)) == ["e2", "e3"]
    opens.clear()
    assert list(dataset.skip(7)) == ["e1", "e2", "e3"]
    assert opens == ["e"]


def test_counts_include_errors_and_depend_on_the_format(files: list[str], opens: list[str]) -> None:
    Path(files[0]).write_bytes(b"a0\n\xff\na2")
    os.utime(files[0], (1e9, 1e9))
    dataset = Dataset.text_lines(files)
    assert len(tape(dataset)) == 10
    opens.clear()
    assert list(dataset.skip(3)) == ALL[3:]
    assert opens == ["b", "c", "d", "e"]
    pairs = Dataset.fixed_length_records(files[4], 3)
    assert len(list(pairs)) == 4
    opens.clear()
    assert list(Dataset.fixed_length_records(files[4], 6).skip(1)) == [b"e2\ne3\n"]
    assert opens == ["e"]


def test_changed_file_is_counted_again(files: list[str]) -> None:
    dataset = Dataset.text_lines(files[:3])
    assert len(list(dataset)) == 4
    Path(files[0]).write_text("longer than before\n" * 9)
    os.utime(files[0], (1e9, 1e9))
    assert list(dataset.skip(9)) == ["c0"]


def test_count_of_a_just_modified_file_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "new"
    path.write_text("a\nb\n")
    assert counts.version_of(str(path)) is None
    os.utime(path, (1e9, 1e9))
    assert counts.version_of(str(path)) is not None
    assert counts.version_of(str(tmp_path / "none")) is None
    assert counts.version_of("memory://new") is None


def test_counts_of_the_oldest_files_are_dropped(files: list[str], monkeypatch) -> None:
    monkeypatch.setattr(counts, "_MAX_FILES", 1)
    monkeypatch.setattr(counts, "_counts", type(counts._counts)())
    versions = [counts.version_of(path) for path in files[:2]]
    for version in versions:
        assert version is not None
        counts.record(version, "layout", 3)
    assert [counts.recorded(version, "layout") for version in versions if version] == [None, 3]


@pytest.mark.parametrize("reads", [None, 3])
def test_closing_mid_epoch_closes_the_files(files: list[str], reads: int | None) -> None:
    with Dataset.text_lines(files, num_parallel_reads=reads).iterator() as iterator:
        assert next(iterator) == "a0"


def test_close_during_a_read_lets_the_reader_close_the_file(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, closed = threading.Event(), threading.Event()
    real = opening._LocalBuffer.move

    def slow(self: Any, at: int, need: int, want: int | None = None) -> bytes:
        reading.set()
        assert closed.wait(10)
        return real(self, at, need, want)

    monkeypatch.setattr(opening._LocalBuffer, "move", slow)
    stream = opened(Dataset.text_lines(files[0]))
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(stream.next()))
    reader.start()
    assert reading.wait(10)
    stream.close()
    closed.set()
    reader.join()
    assert found == ["a0"]
    assert stream.next_chunk(9, 1 << 20) == ["a1", "a2"]
    with pytest.raises(FailedPreconditionError, match="was closed while it was read"):
        stream.next()


def test_chunks_respect_max_bytes(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(bytes(1000) * 500)
    stream = opened(Dataset.fixed_length_records(path, 1000))
    assert len(stream.next_chunk(100, 10_000)) == 9
    assert len(stream.next_chunk(100, 1)) == 1
    assert len(stream.next_chunk(7, 1 << 20)) == 7
    stream.close()


def test_small_files_of_a_list_are_its_splits(files: list[str]) -> None:
    dataset = Dataset.text_lines(files)
    [source] = source_summary(dataset.node)
    assert (source.kind, source.splits) == ("records", ListedSplits())
    assert dataset.node.list_splits(Context(numbers=number(dataset.node))) == files
    splits = ScriptedSplits({source.number: [[files[4], files[2], files[3]]]})
    assert tape(dataset, splits=splits) == [*LINES[4], "c0", "d0", "d1"]


def test_files_of_a_list_that_are_not_cut_are_its_splits(files: list[str]) -> None:
    dataset = Dataset.csv(files, [str])
    [source] = source_summary(dataset.node)
    assert source.splits == IndexSplits(5)
    splits = ScriptedSplits({source.number: [[(4, 5), (2, 4)]]})
    assert tape(dataset, splits=splits) == [(x,) for x in [*LINES[4], "c0", "d0", "d1"]]


def test_counts_of_parts_are_not_those_of_their_file(files: list[str]) -> None:
    dataset = Dataset.text_lines(files[4])
    half = ScriptedSplits({1: [[(files[4], 0, 6, 12)]]})
    assert tape(dataset, splits=half) == LINES[4][:2]
    whole = opened(dataset)
    assert whole.advance(3) == 3
    assert positions(whole) == LINES[4][3:]
    parts = ScriptedSplits({1: [[(files[4], 0, 6, 12), (files[4], 6, 12, 12)]]})
    stream = opened(dataset, splits=parts)
    assert stream.advance(3) == 3
    assert positions(stream) == LINES[4][3:]


@pytest.mark.parametrize("reads", [None, 2])
@pytest.mark.parametrize("listed", [False, True])
def test_workers_share_files_and_read_each_record_once(
    tmp_path: Path, reads: int | None, listed: bool
) -> None:
    expected = []
    for n in range(12):
        with stoker.TFRecordWriter(tmp_path / f"{n:02}.tfrecord") as writer:
            for k in range(50 * n):
                writer.write(b"%d/%d" % (n, k))
                expected.append(b"%d/%d" % (n, k))
    pattern = f"{tmp_path}/*.tfrecord"
    filenames: Any = Dataset.list_files(pattern) if listed else sorted(tmp_path.glob("*.tfrecord"))
    dataset = Dataset.tfrecords(filenames, num_parallel_reads=reads)
    with Service(2) as service:
        found = read(dataset.apply(distribute("distributed_epoch", service.target)))
    assert Counter(found) == Counter(expected)


def test_worker_error_names_the_file_on_the_trainer(tmp_path: Path) -> None:
    path = tmp_path / "bad.tfrecord"
    path.write_bytes(b"this is no TFRecord file")
    with Service(1) as service, Dataset.tfrecords(path).distribute(service.target).iterator() as it:
        with pytest.raises(stoker.errors.DataLossError, match=r"bad\.tfrecord: record 0 at byte 0"):
            read(it, 1)
        assert read(it) == []
