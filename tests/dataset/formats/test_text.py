"""Text files."""

import gzip
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker import Dataset
from stoker.elements.spec import TensorSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, tape


# As tf.data.TextLineDataset in TensorFlow 2.21, except that it removes every \r, also inside lines.
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\r\nb\rc\nd", ["a", "b\rc", "d"]),
        (b"a\r", ["a"]),
        (b"\n\nx\n\n", ["", "", "x", ""]),
        (b"\xef\xbb\xbfa\nb", ["\ufeffa", "b"]),
        (b"a\x00b\nc", ["a\x00b", "c"]),
        ("grün\nlang\u2028e Zeile\x0b\x85\n".encode(), ["grün", "lang\u2028e Zeile\x0b\x85"]),
    ],
)
def test_lines_end_with_newlines_only(tmp_path: Path, blocks, content: bytes, lines: Any) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    assert check_verbs(lambda: Dataset.text_lines(path)) == lines
    as_bytes = [line.encode() for line in lines]
    assert check_verbs(lambda: Dataset.text_lines(path, encoding=None)) == as_bytes


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8")), max_size=30),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    compressed=st.booleans(),
)
def test_written_lines_are_read(
    blocks, lines: list[str], end: str, last: bool, compressed: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        last = last and bool(lines) and bool(lines[-1])
        data = (end.join(lines) + ("" if last or not lines else end)).encode()
        path.write_bytes(gzip.compress(data) if compressed else data)
        compression = "GZIP" if compressed else None
        assert check_verbs(lambda: Dataset.text_lines(path, compression), mixes=2) == lines


def test_lines_longer_than_a_block(tmp_path: Path) -> None:
    lines = ["x" * 1_000_000, "", "y" * 300_000, *map(str, range(50_000)), "z" * 500_000]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines))
    assert list(Dataset.text_lines(path)) == lines
    for n in (1, 3, 30_000, len(lines) - 1):
        assert list(Dataset.text_lines(path).skip(n)) == lines[n:]


def test_undecodable_line_is_an_error_at_its_position(tmp_path: Path, blocks) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntw\xffo\nthree\r\n\xc3\nfive\nsi\xe2\x82")
    found = check_verbs(lambda: Dataset.text_lines(path))
    assert found[::2] == ["one", "three", "five"]
    locations = [(1, 4), (3, 16), (5, 23)]
    for (kind, error, message), (line, byte) in zip(found[1::2], locations, strict=True):
        assert (kind, error) == ("raised", "InvalidArgumentError")
        assert f"{path}: record {line} at byte {byte} is not utf-8" in message
        assert "encoding=None" in message


def test_reading_gzip_as_text_suggests_compression_type(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    with pytest.raises(InvalidArgumentError, match='looks like gzip: give compression_type="GZIP"'):
        next(iter(Dataset.text_lines(path)))


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "shift_jis", "gb18030"])
def test_encodings_with_a_one_byte_newline_are_read(tmp_path: Path, blocks, encoding) -> None:
    lines = ["abc", "", {"latin-1": "grün", "ascii": "x"}.get(encoding, "漢字ポ"), "last"]
    path = tmp_path / "a.txt"
    path.write_bytes("\r\n".join(lines).encode(encoding))
    assert check_verbs(lambda: Dataset.text_lines(path, encoding=encoding)) == lines


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "utf-8-sig", "no-such", "hex", 8, ""])
def test_encodings_without_a_one_byte_newline_raise(encoding: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"`encoding` must (be|represent)"):
        Dataset.text_lines("a.txt", encoding=encoding)


def test_truncated_compressed_text_ends_with_an_error(tmp_path: Path, blocks) -> None:
    """tf.data 2.21 ends without an error here."""
    path = tmp_path / "a.gz"
    lines = [f"line {n}" for n in range(50)]
    whole = gzip.compress("\n".join(lines).encode())
    for size in (1, 9, 12, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        found = check_verbs(lambda: Dataset.text_lines(path, "GZIP"), mixes=1)
        assert found[:-1] == lines[: len(found) - 1]
        assert found[-1][1] == "DataLossError"


def test_skipped_lines_are_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\n" * 10_000 + b"end")
    assert list(Dataset.text_lines(path).skip(10_000)) == ["end"]
    assert len(tape(Dataset.text_lines(path).take(3))) == 3


def test_spec_is_object() -> None:
    assert Dataset.text_lines("any").element_spec == TensorSpec((), object)
