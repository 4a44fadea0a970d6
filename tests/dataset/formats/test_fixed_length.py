"""Files of fixed-length records."""

import gzip
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker import Dataset
from stoker.dataset.formats import opening
from stoker.elements.spec import TensorSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=200),
    length=st.integers(1, 40),
    header=st.integers(0, 30),
    footer=st.integers(0, 30),
    compression=st.sampled_from(["", "GZIP", "ZLIB"]),
)
def test_records_between_header_and_footer_are_read(
    blocks, body: bytes, length: int, header: int, footer: int, compression: str
) -> None:
    body = body[: len(body) // length * length]
    records = [body[at : at + length] for at in range(0, len(body), length)]
    data = b"h" * header + body + b"f" * footer
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "records")
        compress: Any = {"": bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}[compression]
        path.write_bytes(compress(data))

        def make() -> Dataset:
            return Dataset.fixed_length_records(path, length, header, footer, compression)

        assert check_verbs(make, mixes=2) == records


@pytest.mark.parametrize(
    ("content", "layout"), [(b"abc", ()), (b"HabcF", (1, 1)), (b"H", (2,)), (b"Hab", (2, 2))]
)
def test_file_size_that_does_not_fit_the_records_raises(
    tmp_path: Path, content: bytes, layout: Any, blocks
) -> None:
    path = tmp_path / "records"
    path.write_bytes(content)
    [(_, kind, message)] = check_verbs(lambda: Dataset.fixed_length_records(path, 2, *layout))
    assert kind == "InvalidArgumentError"
    header, footer = (*layout, 0, 0)[:2]
    body = len(content) - header - footer
    assert f'input file "{path}" has body length {body} bytes, which is not an exact' in message


@pytest.mark.parametrize(
    ("content", "layout", "records", "message"),
    [
        (b"abc", (), [b"ab"], "record 1 at byte 2 is truncated"),
        (b"HabcF", (1, 1), [b"ab"], "record 1 at byte 3 is truncated"),
        (b"H", (2,), [], "truncated: it ends after 1 bytes, in its header of 2"),
        (b"HHa", (2, 2), [], "record 0 at byte 2 is truncated"),
        (b"HHab", (2, 4), [], "record 0 at byte 2 is truncated"),
    ],
)
def test_compressed_file_is_read_until_its_truncation(
    tmp_path: Path, content: bytes, layout: Any, records: list[bytes], message: str, blocks
) -> None:
    path = tmp_path / "records"
    path.write_bytes(gzip.compress(content))
    header, footer = (*layout, None, None)[:2]
    found = check_verbs(lambda: Dataset.fixed_length_records(path, 2, header, footer, "GZIP"))
    assert found[:-1] == records
    assert found[-1][1] == "DataLossError"
    assert message in found[-1][2]


def test_records_are_skipped_without_reading(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"".join(n.to_bytes(8, "little") for n in range(200_000)))
    reads: list[int] = []
    real = opening._LocalBuffer.move

    def counted(self: Any, at: int, need: int, want: int | None = None) -> bytes:
        block = real(self, at, need, want)
        reads.append(len(block))
        return block

    monkeypatch.setattr(opening._LocalBuffer, "move", counted)
    last = (199_999).to_bytes(8, "little")
    assert list(Dataset.fixed_length_records(path, 8).skip(199_999)) == [last]
    assert sum(reads) == 8


def test_invalid_arguments_raise_and_spec_is_object() -> None:
    assert Dataset.fixed_length_records("any", 4).element_spec == TensorSpec((), object)
    for invalid in ((0,), (-1,), ("4",), (4, -1), (4, 0, -1), (4, 1.5)):
        with pytest.raises(InvalidArgumentError, match="_bytes` must be"):
            Dataset.fixed_length_records("any", *invalid)
