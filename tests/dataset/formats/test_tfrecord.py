"""Reading valid, truncated and corrupt TFRecord files."""

import builtins
import gzip
import sys
import tempfile
import zlib
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker import Dataset
from stoker.dataset.formats import tfrecord
from stoker.dataset.formats.tfrecord import load_crc32c, masked
from stoker.elements.spec import TensorSpec
from stoker.errors import DataLossError, FailedPreconditionError
from tests.dataset.verbs import check_verbs, tape

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
}

# Written by tf.io.TFRecordWriter of TensorFlow 2.21.
RECORDS = [b"", b"stoker", bytes(range(40))]
TENSORFLOW_FILES = {
    "": (
        "000000000000000029039807d8ea82a206000000000000007369d53773746f6b6572cc6d7ff228000000000000"
        "00ff70164a000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627"
        "75118983"
    ),
    "GZIP": (
        "1f8b0800000000000003636080004de619ec375e352d6283f28b33af9a1797e467a7169dc9adffa40115fd5f20"
        "e6c5c0c8c4ccc2cac6cec1c9c5cdc3cbc72f2028242c222a262e2129252d232b27afa0a8a4aca2aaa65e2ad8d9"
        "0c006871f5a75e000000"
    ),
    "ZLIB": (
        "789c636080004de619ec375e352d6283f28b33af9a1797e467a7169dc9adffa40115fd5f20e6c5c0c8c4ccc2ca"
        "c6cec1c9c5cdc3cbc72f2028242c222a262e2129252d232b27afa0a8a4aca2aaa65e2ad8d90c0089c51177"
    ),
}


def written(folder: Path, records: list[bytes], compression: str = "") -> Path:
    path = folder / "written.tfrecord"
    with stoker.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    return path


def outcomes(path: Path, compression: str = "") -> list[Any]:
    """Return the records, and for each error the name of its class."""
    return [
        position if isinstance(position, bytes) else position[1]
        for position in tape(Dataset.tfrecords(path, compression))
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_files_written_by_tensorflow_are_read(tmp_path: Path, compression: str, blocks) -> None:
    path = tmp_path / "tf"
    path.write_bytes(bytes.fromhex(TENSORFLOW_FILES[compression]))
    assert list(Dataset.tfrecords(path, compression)) == RECORDS


def test_written_file_equals_tensorflows(tmp_path: Path) -> None:
    assert written(tmp_path, RECORDS).read_bytes().hex() == TENSORFLOW_FILES[""]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=st.lists(st.one_of(st.binary(max_size=60), st.just(b"same")), max_size=40),
    compression=st.sampled_from(sorted(COMPRESSIONS)),
)
def test_written_records_are_read_with_any_verbs(
    blocks, records: list[bytes], compression: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), records, compression)
        assert check_verbs(lambda: Dataset.tfrecords(path, compression), mixes=2) == records


def test_large_records_and_many_different_lengths(tmp_path: Path) -> None:
    records = [b"x" * 700_000, *(bytes(n) for n in range(3000)), b"y" * 300_000, b""]
    path = written(tmp_path, records)
    assert check_verbs(lambda: Dataset.tfrecords(path), mixes=2) == records


def test_more_lengths_than_are_cached(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tfrecord, "_MAX_HEADERS", 3)
    records = [bytes(n) for n in (*range(10), *range(10))]
    assert list(Dataset.tfrecords(written(tmp_path, records))) == records


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_empty_file_has_no_records(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert check_verbs(lambda: Dataset.tfrecords(path, compression)) == []
    path.write_bytes(COMPRESSIONS[compression](b""))
    assert check_verbs(lambda: Dataset.tfrecords(path, compression)) == []


def test_truncated_file_yields_whole_records_and_one_error(tmp_path: Path, blocks) -> None:
    whole = written(tmp_path, RECORDS).read_bytes()
    path = tmp_path / "short"
    ends = [0]
    for record in RECORDS:
        ends.append(ends[-1] + 16 + len(record))
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        found = check_verbs(lambda: Dataset.tfrecords(path), mixes=1)
        count = sum(end <= size for end in ends[1:])
        assert found[:count] == RECORDS[:count]
        if size in ends:
            assert len(found) == count
            continue
        [(_, kind, message)] = found[count:]
        assert kind == "DataLossError"
        assert f"{path}: record {count} at byte {ends[count]} is truncated" in message
        assert f"the file ends after {size - ends[count]}" in message


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_truncated_compressed_file_never_ends_silently(
    tmp_path: Path, compression: str, blocks
) -> None:
    whole = written(tmp_path, RECORDS, compression).read_bytes()
    path = tmp_path / "short"
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        found = check_verbs(lambda: Dataset.tfrecords(path, compression), mixes=1)
        assert found[:-1] == RECORDS[: len(found) - 1]
        assert found[-1][1] == "DataLossError"
        assert str(path) in found[-1][2]


def test_length_beyond_the_file_is_reported_as_truncation(tmp_path: Path) -> None:
    length = (1 << 62).to_bytes(8, "little")
    header = length + masked(load_crc32c()(length)).to_bytes(4, "little")
    for compression, compress in COMPRESSIONS.items():
        path = tmp_path / "long"
        path.write_bytes(compress(header + b"abc"))
        [found] = check_verbs(lambda: Dataset.tfrecords(path, compression), mixes=1)  # noqa: B023
        assert "is truncated: it has 4611686018427387920 bytes" in found[2]


def test_flipped_bit_is_an_error_at_its_position(tmp_path: Path, blocks) -> None:
    whole = written(tmp_path, RECORDS).read_bytes()
    path = tmp_path / "flipped"
    starts = [0, 16, 38]
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        found = check_verbs(lambda: Dataset.tfrecords(path), mixes=1)
        hit = sum(start <= at for start in starts) - 1
        in_header = at - starts[hit] < 12
        assert found[:hit] == RECORDS[:hit]
        assert found[hit][1] == "DataLossError"
        assert f"{path}: record {hit} at byte {starts[hit]} is corrupt" in found[hit][2]
        # Reading continues after corrupt data; after a corrupt length no record can be found.
        assert found[hit + 1 :] == ([] if in_header else RECORDS[hit + 1 :])


def test_corrupt_records_among_valid_ones(tmp_path: Path) -> None:
    records = [bytes([n]) * 20 for n in range(200)]
    path = written(tmp_path, records)
    data = bytearray(path.read_bytes())
    bad = {0, 1, 2, 50, 120, 121, 199}
    for n in bad:
        data[n * 36 + 20] ^= 255
    path.write_bytes(data)
    found = outcomes(path)
    assert found == ["DataLossError" if n in bad else r for n, r in enumerate(records)]
    assert check_verbs(lambda: Dataset.tfrecords(path), mixes=4)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_flipped_bit_when_compressed_gives_no_wrong_record(
    tmp_path: Path, compression: str, blocks
) -> None:
    whole = written(tmp_path, RECORDS, compression).read_bytes()
    path = tmp_path / "flipped"
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        found = outcomes(path, compression)
        for record, outcome in zip_longest(RECORDS, found):
            assert outcome in (record, "DataLossError", None)
        # A few bits, such as those of gzip's time stamp, do not affect the data.
        assert found == RECORDS or "DataLossError" in found


def test_file_of_another_format_raises(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("this is no TFRecord file")
    with pytest.raises(DataLossError, match=r"words.txt: record 0 at byte 0 .* no TFRecord file"):
        list(Dataset.tfrecords(path))


def test_skipped_data_is_neither_read_nor_checked(tmp_path: Path, monkeypatch) -> None:
    records = [bytes(1000)] * 50 + [b"z" * 2_000_000] * 3 + [b"end"]
    path = written(tmp_path, records)
    real, checked = load_crc32c(), []

    def counted(data: bytes) -> int:
        checked.append(len(data))
        return real(data)

    monkeypatch.setattr(tfrecord, "load_crc32c", lambda: counted)
    assert list(Dataset.tfrecords(path).skip(53)) == [b"end"]
    assert checked == [8, 8, 8, 3]  # each length once, and the one record that is yielded


def test_spec_is_object(tmp_path: Path) -> None:
    dataset = Dataset.tfrecords(tmp_path / "any")
    assert dataset.element_spec == TensorSpec((), object)
    assert dataset.cardinality() == stoker.UNKNOWN_CARDINALITY


def test_missing_google_crc32c_is_reported_with_the_extra(tmp_path: Path, monkeypatch) -> None:
    path = written(tmp_path, RECORDS)
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == "google_crc32c":
            raise ModuleNotFoundError(name)
        return real(name, *args)

    monkeypatch.delitem(sys.modules, "google_crc32c")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'stoker\[tfrecord\]'"):
        next(iter(Dataset.tfrecords(path)))
    with pytest.raises(FailedPreconditionError, match=r"pip install 'stoker\[tfrecord\]'"):
        stoker.TFRecordWriter(path)
