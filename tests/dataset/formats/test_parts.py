"""Parts of files: together they are the file, in any format, however small they are."""

import os
import re
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker import Dataset
from stoker.dataset.formats import opening, parts, tfrecord
from stoker.dataset.formats.parts import FilePart, even_cuts
from stoker.dataset.nodes import Records
from stoker.dataset.tree.node import Context, number
from stoker.dataset.tree.splits import ListedSplits
from tests.dataset.verbs import check_verbs, tape

EACH_EXAMPLE = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

LINES = st.lists(
    st.tuples(st.sampled_from([b"", b"a", b"bcd", b"\r", b"x\ry", b"e" * 40]), st.booleans())
)
"""Contents of lines, and whether each ends with CR LF."""


class _Assigned:
    """Assign the same splits of one source to every reader."""

    draining = False

    def __init__(self, splits: list[Any]) -> None:
        self._splits = splits

    def open(self, source: int) -> Iterator[Any]:
        return iter(self._splits)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests choose the size of parts by `_parts`, and cut files of a few bytes."""
    monkeypatch.setattr(parts, "MAX_PART_BYTES", 1 << 40)


def _parts(dataset: Dataset, part_bytes: int, **context: Any) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "part_bytes_of", lambda total: part_bytes)
        assert dataset.node.splits() == ListedSplits()
        return dataset.node.list_splits(Context(numbers=number(dataset.node), **context))


def _check_parts(dataset: Dataset, part_bytes: int) -> list[Any]:
    """Check that the parts of the files together are the files; return the parts."""
    found = _parts(dataset, part_bytes)
    whole = [_without_numbers(position) for position in tape(dataset)]
    read = tape(dataset, splits=_Assigned(found))
    assert [_without_numbers(position) for position in read] == whole
    each = [tape(dataset, splits=_Assigned([part])) for part in found]
    assert [position for part in each for position in part] == read
    check_verbs(lambda: dataset, mixes=2, splits=_Assigned(found))
    return found


def _without_numbers(position: Any) -> Any:
    """Remove the number of a record from its error: those of a part are counted from its start."""
    if isinstance(position, tuple):
        return re.sub(r"record \d+( after byte \d+)? at", "record at", str(position))
    return position


@EACH_EXAMPLE
@given(lines=LINES, last=st.binary(max_size=5), part_bytes=st.integers(1, 60))
def test_parts_of_text_are_the_file(blocks, lines, last: bytes, part_bytes: int) -> None:
    data = b"".join(line + (b"\r\n" if crlf else b"\n") for line, crlf in lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text")
        path.write_bytes(data + last)
        for encoding in (None, "utf-8", "latin-1"):
            _check_parts(Dataset.text_lines(path, encoding=encoding), part_bytes)


@EACH_EXAMPLE
@given(
    count=st.integers(0, 30),
    length=st.integers(1, 9),
    header=st.integers(0, 9),
    footer=st.integers(0, 9),
    extra=st.sampled_from([0, 0, 0, 1]),
    part_bytes=st.integers(1, 60),
)
def test_parts_of_fixed_length_records_are_the_file(
    blocks, count: int, length: int, header: int, footer: int, extra: int, part_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "records")
        body = os.urandom(count * length + extra)
        path.write_bytes(b"h" * header + body + b"f" * footer)
        _check_parts(Dataset.fixed_length_records(path, length, header, footer), part_bytes)


@EACH_EXAMPLE
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 40]), max_size=20),
    damage=st.none() | st.integers(0, 10_000),
    cut=st.integers(0, 20),
    part_bytes=st.integers(1, 90),
)
def test_parts_of_tfrecords_are_the_file(
    blocks, sizes: list[int], damage: int | None, cut: int, part_bytes: int
) -> None:
    """Also of damaged and truncated ones: the parts contain the same errors at the same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "records")
        with stoker.TFRecordWriter(path) as writer:
            for size in sizes:
                writer.write(os.urandom(size))
        data = bytearray(path.read_bytes())
        if damage is not None and data:
            data[damage % len(data)] ^= 1
            data = data[: len(data) - cut]
        path.write_bytes(data)
        _check_parts(Dataset.tfrecords(path), part_bytes)


def test_parts_have_about_the_same_size(tmp_path: Path) -> None:
    text, pairs, records = tmp_path / "text", tmp_path / "pairs", tmp_path / "records"
    text.write_bytes(b"abcdefghi\n" * 10)
    pairs.write_bytes(b"HHH" + b"ab" * 10 + b"F")
    with stoker.TFRecordWriter(records) as writer:
        for size in (4, 84, 4, 4):  # 20, 100, 20 and 20 bytes
            writer.write(bytes(size))
    assert _ranges(Dataset.text_lines(text), 30) == [(0, 25), (25, 50), (50, 75), (75, 100)]
    dataset = Dataset.fixed_length_records(pairs, 2, 3, 1)
    assert _ranges(dataset, 9) == [(3, 9), (9, 15), (15, 23)]
    assert _ranges(Dataset.tfrecords(records), 40) == [(0, 120), (120, 160)]


def _ranges(dataset: Dataset, part_bytes: int) -> list[tuple[int, int]]:
    return [(part.start, part.stop) for part in _check_parts(dataset, part_bytes)]


def test_a_header_that_is_corrupt_ends_the_cuts(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with stoker.TFRecordWriter(path) as writer:
        for _ in range(9):
            writer.write(bytes(4))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    dataset = Dataset.tfrecords(path)
    found = _check_parts(dataset, 40)
    assert found[:2] == [FilePart(str(path), 0, 40, 180), FilePart(str(path), 40, 80, 180)]
    assert found[-1].stop == 180
    [*_, (_, kind, message)] = tape(dataset, splits=_Assigned(found[-1:]))
    assert kind == "DataLossError"
    assert "record 1 after byte 80 at byte 100 is corrupt" in message


def test_a_file_of_one_part_and_no_file_are_their_path(tmp_path: Path) -> None:
    (tmp_path / "small").write_text("a\n")
    (tmp_path / "empty").touch()
    paths = [str(tmp_path / name) for name in ("small", "empty", "missing")]
    dataset = Dataset.text_lines([*paths, tmp_path])
    assert _parts(dataset, 2) == [*paths, str(tmp_path)]
    assert _check_parts(Dataset.text_lines([]), 1) == []


@pytest.mark.parametrize("size", [5, 15])
@pytest.mark.parametrize("name", ["local", "url"])
def test_file_whose_size_has_changed_is_an_error_of_each_part(
    tmp_path: Path, size: int, name: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a\n" * 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MAX_PART_BYTES", 5)
        dataset = Dataset.text_lines(path if name == "local" else f"file://{path}")
        found = _parts(dataset, 5)
    assert len(found) == 2
    path.write_bytes(bytes(size))
    expected = f"a has changed: it had 10 bytes when its parts were listed, and has {size} now"
    for part in found:
        [(_, kind, message)] = tape(dataset, splits=_Assigned([part]))
        assert kind == "DataLossError"
        assert expected in message
        assert f"its bytes {part.start} to {part.stop} are not read" in message


def test_a_file_that_shrinks_while_a_part_is_read_is_an_error(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc\n" * 10)
    dataset = Dataset.fixed_length_records(path, 4)
    found = _parts(dataset, 20)
    real = opening.open_buffer

    def open_and_shrink(path: str, compression: str) -> opening.FileBuffer:
        buffer = real(path, compression)
        os.truncate(path, 10)
        return buffer

    monkeypatch.setattr(parts, "open_buffer", open_and_shrink)
    *_, (_, kind, message) = tape(dataset, splits=_Assigned(found[:1]))
    assert kind == "DataLossError"
    assert "a is truncated: it had 40 bytes when it was opened, and now ends after 10" in message


def test_urls_are_cut_in_large_parts(monkeypatch) -> None:
    with fsspec.open("memory://bucket/text", "wb") as file:
        file.write(b"line\n" * 40)
    monkeypatch.setattr(parts, "MAX_PART_BYTES", 50)
    url = "memory://bucket/text"
    found = _check_parts(Dataset.text_lines(url), 1)
    assert found == [FilePart(url, start, start + 50, 200) for start in range(0, 200, 50)]
    bad = ["memory://bucket/none", "nonsense://bucket/text"]
    records = Dataset.fixed_length_records([*bad, url], 5)
    assert _check_parts(records, 1) == [*bad, *found]
    with stoker.TFRecordWriter("memory://bucket/records") as writer:
        writer.write(bytes(100))
        writer.write(bytes(100))
    # A request for each record would take too long.
    dataset = Dataset.tfrecords("memory://bucket/records")
    assert _check_parts(dataset, 1) == ["memory://bucket/records"]
    chained = "simplecache::memory://bucket/text"
    monkeypatch.setattr(parts, "open_file", None)  # it copies the file
    assert _parts(Dataset.text_lines(chained), 1) == [chained]


def test_part_sizes_depend_on_the_bytes_of_all_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, size in zip(paths, (3000, 70_000), strict=True):
        path.write_bytes(bytes(size))
    dataset = Dataset.fixed_length_records(paths, 10)
    [small, *large] = dataset.node.list_splits(Context(numbers=number(dataset.node)))
    assert small == str(paths[0])
    assert [(x.start, x.stop) for x in large[:2]] == [(0, 3880), (3880, 7770)]
    assert len(large) == 18


def test_many_files_are_not_cut(tmp_path: Path, monkeypatch) -> None:
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    Path(paths[0]).write_bytes(bytes(100))
    dataset = Dataset.fixed_length_records(paths, 10)
    assert len(_check_parts(dataset, 10)) == 11
    monkeypatch.setattr(parts, "MOST_FILES", 1)
    assert _parts(dataset, 10) == paths


def test_tfrecord_files_are_cut_if_few_are_large(tmp_path: Path) -> None:
    paths = [tmp_path / f"{file:02}" for file in range(18)]
    for path in paths:
        with stoker.TFRecordWriter(path) as writer:
            for _ in range(50 if path == paths[3] else 10):
                writer.write(bytes(4))
    found = _check_parts(Dataset.tfrecords(paths), 20)
    assert [x for x in found if isinstance(x, str)] == [str(x) for x in paths if x != paths[3]]
    assert {x.path for x in found if isinstance(x, FilePart)} == {str(paths[3])}


def test_a_tfrecord_file_is_walked_once(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "records"
    with stoker.TFRecordWriter(path) as writer:
        for _ in range(10):
            writer.write(bytes(4))
    os.utime(path, (1e9, 1e9))
    dataset = Dataset.tfrecords(path)
    found = _parts(dataset, 40)
    monkeypatch.setattr(tfrecord, "_walked_cuts", None)
    assert _parts(dataset, 40) == found
    assert len(found) == 5
    os.utime(path, (1e9, 2e9))
    with pytest.raises(TypeError):
        _parts(dataset, 40)


def test_parts_within_a_line_read_only_their_bytes(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 400_000 + b"\n")
    dataset = Dataset.text_lines(path)
    found = _parts(dataset, 10_000)
    assert len(found) > 40
    read = []
    real = os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        read.append(size)
        return real(file, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    assert tape(dataset, splits=_Assigned(found[1:])) == []
    assert sum(read) < 2 * 400_000


def test_shuffled_names_are_listed_in_the_order_of_an_epoch(tmp_path: Path) -> None:
    for name in range(20):
        (tmp_path / f"{name:02}").write_text(f"{name}\n")
    paths = sorted(map(str, tmp_path.iterdir()))
    for names in (
        Dataset.list_files(str(tmp_path / "*")),
        Dataset.list_files(str(tmp_path / "*"), shuffle=False).shuffle(30),
        Dataset.from_tensor_slices(paths).shuffle(30).prefetch(3),
    ):
        dataset = Dataset.text_lines(names)
        listed = _parts(dataset, 100, seed=11, epoch=(2,))
        assert sorted(listed) == paths != listed
        assert [int(Path(path).name) for path in listed] == list(map(int, tape(dataset)))


def test_readers_whose_files_are_not_cut_have_no_parts(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    listed = Dataset.list_files(str(tmp_path / "*"))
    sliced = Dataset.from_tensor_slices(list(map(str, paths)))
    for dataset in (
        Dataset.csv(paths, [str]),
        Dataset.text_lines(paths, "GZIP"),
        Dataset.tfrecords(paths, num_parallel_reads=2),
        Dataset.text_lines(listed.repeat(2)),
        Dataset.text_lines(sliced.map(str)),
        Dataset.text_lines(sliced.repeat()),
        Dataset.text_lines(["a"] * (parts.MOST_FILES + 1)),
        listed.interleave(Dataset.text_lines),
    ):
        assert dataset.node.splits() is None
    assert isinstance(Dataset.text_lines(listed).node, Records)
    assert Dataset.text_lines(listed).node.splits() == ListedSplits()


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_even_cuts_divide_all(total: int, most: int) -> None:
    cuts = even_cuts(total, most)
    sizes = {stop - start for start, stop in pairwise(cuts)}
    assert (cuts[0], cuts[-1], cuts) == (0, total, sorted(cuts))
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
