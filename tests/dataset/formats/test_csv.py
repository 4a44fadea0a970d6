"""CSV files."""

import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker import Dataset
from stoker.dataset.formats.csv import CsvReader
from stoker.elements.spec import TensorSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, tape


def read(tmp_path: Path, content: bytes, *args: Any, **kwargs: Any) -> list[Any]:
    """Return the rows, and of each error the message after the path."""
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    found = check_verbs(lambda: Dataset.csv(path, *args, **kwargs), mixes=3)
    for position in found:
        if position[:1] == ("raised",):
            assert position[1] == "InvalidArgumentError"
            assert str(path) in position[2]
    return [
        position[2].partition(f"{path}: ")[2] if position[:1] == ("raised",) else position
        for position in found
    ]


TOO_FEW = "record {} at byte {}: Expect 2 fields but have {} in record"
TOO_MANY = "record {} at byte {}: Expect 2 fields but have more in record: {}"
MISSING = "record {} at byte {}: Field {} is required but missing in record! Give a default in "
MISSING += "`record_defaults` to allow it"
QUOTE_INSIDE = "record {} at byte {}: Unquoted fields cannot have quotes inside"
UNCLOSED = "record {} at byte {}: Reached end of file without closing quoted field in record"
NOT_DOUBLED = "record {} at byte {}: Quote inside a string has to be escaped by another quote"


# As tf.data.experimental.CsvDataset in TensorFlow 2.21, except NOT_DOUBLED, after which TensorFlow
# skips the rest of the file.
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [TOO_FEW.format(0, 0, 1)]),
        (b"a,b\n", [("a", "b")]),
        (b"a,b", [("a", "b")]),
        (b"a,b\r\nc,d", [("a", "b"), ("c", "d")]),
        (b"a,b\rc,d", [("a", "b"), ("c", "d")]),
        (b"a\n\nb,c", [TOO_FEW.format(0, 0, 1), TOO_FEW.format(1, 2, 1), ("b", "c")]),
        (b"a,b,c\nd,e", [TOO_MANY.format(0, 0, 3), ("d", "e")]),
        (b'"a","b"\n"c,d","e\nf"\n', [("a", "b"), ("c,d", "e\nf")]),
        (b'"a""b",c', [('a"b', "c")]),
        (b'"a"x,c\nd,e', [NOT_DOUBLED.format(0, 0), ("d", "e")]),
        (b'a"b,c\r\nd,e', [QUOTE_INSIDE.format(0, 0), ("d", "e")]),
        (b'a, "b"\r', [QUOTE_INSIDE.format(0, 0)]),
        (b'x,y\n"a,b\nc,d', [("x", "y"), UNCLOSED.format(1, 4)]),
        (b'a,""\nb,"', [MISSING.format(0, 0, 1), UNCLOSED.format(1, 5)]),
        (b",\n", [MISSING.format(0, 0, 0)]),
        (b"a,", [MISSING.format(0, 0, 1)]),
        (b"a,b\r\r\nc,d", [("a", "b"), TOO_FEW.format(1, 4, 1), ("c", "d")]),
        (b'"a\r\nb",c\n', [("a\r\nb", "c")]),
        (b'"a"\r\n', [TOO_FEW.format(0, 0, 1)]),
        (b" a , b \n", [(" a ", " b ")]),
        (b"\xef\xbb\xbfa,b", [("\ufeffa", "b")]),
        (b"a,\xff\nc,d", ["record 0 at byte 0: field 1 is not a valid str: b'\\xff'", ("c", "d")]),
    ],
)
def test_rows_and_errors_keep_their_positions(
    tmp_path: Path, blocks, content: bytes, expected: list[Any]
) -> None:
    assert read(tmp_path, content, [str, str]) == expected


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.text(st.sampled_from('ab,"\r\nü '), min_size=1),
            st.text(st.sampled_from('ab,"\r\nü '), min_size=1),
        ),
        max_size=20,
    ),
    dialect=st.sampled_from(
        [
            ("\n", csv.QUOTE_ALL),
            ("\r\n", csv.QUOTE_ALL),
            ("\r", csv.QUOTE_ALL),
            ("\r\n", csv.QUOTE_MINIMAL),  # with other line ends it leaves a lone \r unquoted
        ]
    ),
)
def test_rows_written_by_the_csv_module_are_read(
    blocks, rows: Any, dialect: tuple[str, Any]
) -> None:
    end, quoting = dialect
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end, quoting=quoting).writerows(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.csv")
        path.write_bytes(text.getvalue().encode())
        assert check_verbs(lambda: Dataset.csv(path, [str, str]), mixes=2) == rows


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.lists(
            st.sampled_from(
                ["1", " 2", "255", *["7"] * 9, "", "NA", "1_0", "300", "x", "\xff", '"3"']
            ),
            min_size=4,
            max_size=5,
        ),
        max_size=12,
    ),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    selected=st.sampled_from([None, [0, 1, 2, 4], [0, 1, 2, 3]]),
)
def test_parsing_by_column_equals_parsing_by_row(
    monkeypatch, tmp_path: Path, rows: list[list[str]], end: str, selected: Any
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(end.join(map(",".join, rows)).encode("latin-1"))
    defaults = [int, 5, np.array([9], np.uint8), ""]
    dataset = Dataset.csv(path, defaults, na_value="NA", select_cols=selected)
    found = tape(dataset)
    with monkeypatch.context() as patch:
        patch.setattr(CsvReader, "_find_columns", lambda self: ([], 0))
        assert tape(dataset) == found


LONG = "x" * 300_000


@pytest.mark.parametrize(("field", "value"), [(LONG, LONG), (f'"a,\n""{LONG}"', f'a,\n"{LONG}')])
def test_fields_longer_than_csv_field_size_limit_are_read(
    tmp_path: Path, field: str, value: str
) -> None:
    limit = csv.field_size_limit()
    assert limit < 300_000
    path = tmp_path / "a.csv"
    path.write_text(f"a,b\n1,{field}\n2,c\n")
    assert list(Dataset.csv(path, [str, str])) == [("a", "b"), ("1", value), ("2", "c")]
    assert csv.field_size_limit() == limit


def test_types_and_defaults(tmp_path: Path) -> None:
    defaults = [str, b"none", int, 7, float, 0.5, np.int32, np.float32(1.5), np.array([2], "u1")]
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b,1,2,3,4,5,6,7\nx,,-1,,1e3,,5,,\n")
    first, second = Dataset.csv(path, defaults)
    assert first == ("a", b"b", 1, 2, 3.0, 4.0, np.int32(5), np.float32(6), np.uint8(7))
    assert second == ("x", b"none", -1, 7, 1000.0, 0.5, np.int32(5), np.float32(1.5), np.uint8(2))
    types = [str, bytes, int, int, float, float, np.int32, np.float32, np.uint8]
    assert [type(value) for value in first] == types
    assert [type(value) for value in second] == types


def test_spec_has_the_dtype_of_each_column() -> None:
    dataset = Dataset.csv("any", [str, b"", 1, 0.5, np.float16, np.array([], np.int8)])
    dtypes = [object, object, np.int64, np.float64, np.float16, np.int8]
    assert dataset.element_spec == tuple(TensorSpec((), dtype) for dtype in dtypes)


# As tf.data 2.21, except hexadecimal floats, which tf.data accepts.
@pytest.mark.parametrize(
    ("kind", "valid", "invalid"),
    [
        (int, {" 1 ": 1, "+3": 3, "-0": 0, "00": 0, str(2**63 - 1): 2**63 - 1}, [str(2**63)]),
        (np.int32, {"-5": -5, "2147483647": 2**31 - 1}, ["2147483648", "1.0", "0x1", "1_0", "x"]),
        (np.uint8, {"255": 255}, ["256", "-1"]),
        (np.float32, {"1.5": 1.5, " inf": np.inf, ".5": 0.5, "5.": 5.0, "1e3": 1000}, ["-", "1_0"]),
        (np.float32, {"1e40": np.inf, "-1e40": -np.inf, "3.4028235e38": 3.4028234663852886e38}, []),
        (np.float16, {"65519": 65504.0, "65520": np.inf}, ["a"]),
        (float, {"1e400": np.inf, "1e40": 1e40}, ["", "one"]),
    ],
)
def test_valid_and_invalid_numbers(
    tmp_path: Path, kind: Any, valid: dict[str, Any], invalid: list[str]
) -> None:
    content = "".join(f"{field},.\n" for field in [*valid, *invalid]).encode()
    found = read(tmp_path, content, [kind, str])
    assert found[: len(valid)] == [(value, ".") for value in valid.values()]
    for field, message in zip(invalid, found[len(valid) :], strict=True):
        expected = (
            f"field 0 is not a valid {np.dtype(kind).name if kind not in (int, float) else ''}"
        )
        assert (expected if field else "is required but missing") in message


def test_nan_is_a_valid_float(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"nan\n")
    [(found,)] = Dataset.csv(path, [np.float32])
    assert np.isnan(found)


def test_na_values_empty_and_quoted_fields_are_missing(tmp_path: Path) -> None:
    content = b'NA,NA\nx,1\n,1\n"NA",1\n"",""\n'
    rows = [("d", 3), ("x", 1), ("d", 1), ("d", 1), ("d", 3)]
    assert read(tmp_path, content, ["d", 3], na_value="NA") == rows


def test_header_of_each_file_is_skipped(tmp_path: Path, blocks) -> None:
    assert read(tmp_path, b'"h\n1",h2\na,b\n', [str, str], header=True) == [("a", "b")]
    assert read(tmp_path, b"h1,h2", [str, str], header=True) == []
    path = tmp_path / "a.csv"
    path.write_bytes(b"h\na\n")
    assert list(Dataset.csv([path, path], [str], header=True)) == [("a",), ("a",)]
    path.write_bytes(b"")
    with pytest.raises(
        InvalidArgumentError, match=r"Can't read header of file .*a.csv: it is empty"
    ):
        list(Dataset.csv(path, [str], header=True))


def test_columns_are_selected(tmp_path: Path, blocks) -> None:
    content = b"a,b,c\nd,e,f\ng,h\ni\n"
    few = "record {} at byte {}: Expect {} fields but have {} in record"
    assert read(tmp_path, content, [str, str], select_cols=[0, 2]) == [
        ("a", "c"), ("d", "f"), few.format(2, 12, 2, 1), few.format(3, 16, 2, 1),
    ]  # fmt: skip
    expected = [("a", "b"), ("d", "e"), ("g", "h"), few.format(3, 16, 2, 1)]
    assert read(tmp_path, content, [str, str], select_cols=[0, 1]) == expected


def test_field_delim_and_use_quote_delim(tmp_path: Path, blocks) -> None:
    assert read(tmp_path, b"a\tb,c\n", [str, str], field_delim="\t") == [("a", "b,c")]
    content = b'"a",b\n"c,d"\n'
    rows = [('"a"', "b"), ('"c', 'd"')]
    assert read(tmp_path, content, [str, str], use_quote_delim=False) == rows


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([],), "at least one entry"),
        (("abc",), "must be a list"),
        (([None],), r"`record_defaults\[0\]` must be"),
        (([str, bool],), r"`record_defaults\[1\]` must be"),
        (([True],), r"`record_defaults\[0\]` must be"),
        (([np.complex64],), r"`record_defaults\[0\]` must be"),
        (([np.zeros(2)],), r"`record_defaults\[0\]` must be"),
        (([2**63],), "beyond int64"),
        (([str], "BZIP2"), "`compression_type` must be"),
        (([str], None, 1), "`header` must be"),
        (([str], None, False, "||"), "`field_delim` must be"),
        (([str], None, False, ""), "`field_delim` must be"),
        (([str], None, False, "\n"), "`field_delim` must be"),
        (([str], None, False, "é"), "`field_delim` must be"),
        (([str], None, False, ",", None), "`use_quote_delim` must be"),
        (([str], None, False, ",", True, None), "`na_value` must be"),
        (([str], None, False, ",", True, "", [0, 1]), "`select_cols` must have an entry"),
        (([str, str], None, False, ",", True, "", [1, 0]), "`select_cols` must ascend"),
        (([str], None, False, ",", True, "", [-1]), "`select_cols` must be"),
        (([str], None, False, ",", True, "", 1), "`select_cols` must be a list of ints.*got 1"),
    ],
)
def test_invalid_arguments_raise_at_construction(arguments: Any, match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        Dataset.csv("any.csv", *arguments)


def test_rows_batch_by_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,1\nb,2\n")
    [(names, sizes)] = Dataset.csv(path, [str, int]).batch(2)
    assert names.tolist() == ["a", "b"]
    assert sizes.dtype == np.int64
    assert sizes.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("excluded", "columns", "expected"),
    [
        ([1], 3, ["a", "c", "d"]),
        ([0, 2], 2, ["b", "d"]),
        ([], 4, ["a", "b", "c", "d"]),
        ([9], 4, ["a", "b", "c", "d"]),
        ([2, 3], 2, ["a", "b"]),
        ([1], 2, "Expect 2 fields but have more in record: 4"),
        ([1], 4, "Expect 4 fields but have 3 in record"),
        ([], 3, "Expect 3 fields but have more in record: 4"),
        ([4, 5], 4, ["a", "b", "c", "d"]),
        ([5], 5, "Expect 5 fields but have 4 in record"),
        ([3, 4], 2, "Expect 2 fields but have more in record: 4"),
    ],
)
@pytest.mark.parametrize("content", [b"a,b,c,d\n", b'a,"b",c,d\r\na,b,c,d'])
def test_columns_that_are_excluded_need_no_default(
    tmp_path: Path, content: bytes, excluded: list[int], columns: int, expected: Any
) -> None:
    found = read(tmp_path, content, [str] * columns, exclude_cols=excluded)
    for position in found:
        assert position[-len(expected) :] == (
            expected if isinstance(expected, str) else tuple(expected)
        )


def test_an_excluded_column_may_be_absent_at_the_end(tmp_path: Path) -> None:
    content = b"a,b\nc,d,e\nf,g,h,i\nj,k,l,m,n\n"
    found = read(tmp_path, content, [str, str], exclude_cols=[2, 3])
    assert found == [
        ("a", "b"),
        ("c", "d"),
        ("f", "g"),
        "record 3 at byte 18: Expect 2 fields but have more in record: 5",
    ]


@pytest.mark.parametrize("excluded", [[1, 0], [0, 0], [-1], 1, ["a"]])
def test_excluded_columns_must_ascend(excluded: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="`exclude_cols` must"):
        Dataset.csv("a", [str], exclude_cols=excluded)


def test_columns_are_selected_or_excluded() -> None:
    with pytest.raises(InvalidArgumentError, match="Either select_cols or exclude_cols"):
        Dataset.csv("a", [str], select_cols=[0], exclude_cols=[1])
