"""Element files: elements come back as written, or an error names where the file is damaged."""

import io
import re
from collections import namedtuple
from typing import Any, BinaryIO

import numpy as np
import pytest

from stoker.dataset.formats import elements_file
from stoker.dataset.formats.elements_file import ElementsFile, ElementsWriter
from stoker.dataset.formats.elements_stream import StoredFile, StoredStream
from stoker.dataset.formats.opening import WINDOW_BITS
from stoker.dataset.formats.storage import Folder
from stoker.dataset.nodes.load import Load
from stoker.dataset.tree.node import Context
from stoker.elements.codec.elements import TypeResolver
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import UnknownSpec
from stoker.errors import DataLossError, InvalidArgumentError
from tests.dataset.splits import ScriptedSplits


def written(chunks: list[list[Any]], compression: str = "") -> bytes:
    file = io.BytesIO()
    writer = ElementsWriter(file, compression)
    for chunk in chunks:
        writer.add(chunk)
    writer.finish()
    return file.getvalue()


def opened(data: bytes) -> ElementsFile:
    return ElementsFile(io.BytesIO(data), "some.elements")


def read(data: bytes) -> list[Any]:
    file = opened(data)
    records = len(file.firsts) - 1
    return [element for record in range(records) for element in file.read(record)]


@pytest.mark.parametrize("compression", ["", *WINDOW_BITS])
def test_elements_come_back_equal_and_in_order(compression):
    elements = [{"x": np.arange(i), "text": "é" * i, "n": None} for i in range(50)]
    found = read(written([elements[:20], elements[20:21], elements[21:]], compression))
    assert [(e["x"].tolist(), e["text"], e["n"]) for e in found] == [
        (list(range(i)), "é" * i, None) for i in range(50)
    ]


def test_an_empty_file_has_no_elements():
    assert opened(written([])).count == 0
    assert read(written([])) == []


def test_arrays_come_back_writable_and_in_their_order():
    arrays = [np.asfortranarray(np.ones((300, 300))), np.ones(3, ">i2")]
    large, small = read(written([arrays]))
    large[0, 0], small[0] = 7, 7
    assert large.flags.f_contiguous
    assert small.dtype == np.dtype(">i2")


def test_every_kind_of_element_comes_back():
    Point = namedtuple("Point", "x y")  # noqa: PYI024
    ragged = RaggedArray.from_rows([[1, 2], [3]])
    sparse = SparseArray.from_dense([[0, 7]])
    elements = [Point(1, 2**70), b"\0", (1.5, [True, 2j]), ragged, sparse, np.float32(3)]
    file = ElementsFile(
        io.BytesIO(written([[e] for e in elements])), "f", TypeResolver(Point(None, None))
    )
    found = file.read(0)
    assert type(found[0]) is Point
    assert found[:3] == elements[:3]
    assert found[3].to_list() == [[1, 2], [3]]
    assert found[4].values.tolist() == [7]
    assert type(found[5]) is np.float32


def test_arrays_may_be_changed_after_adding_them():
    file = io.BytesIO()
    writer = ElementsWriter(file)
    array, ragged = np.zeros(3), RaggedArray.from_rows([[1.0]])
    writer.add([{"x": array, "ragged": ragged}])
    array[:] = 9
    ragged.values[:] = 9
    writer.finish()
    [found] = read(file.getvalue())
    assert found["x"].tolist() == [0, 0, 0]
    assert found["ragged"].to_list() == [[1.0]]


def test_records_are_bounded_in_elements_and_bytes(monkeypatch):
    monkeypatch.setattr(elements_file, "RECORD_ELEMENTS", 100)
    monkeypatch.setattr(elements_file, "RECORD_BYTES", 10_000)
    file = opened(written([list(range(250)), [np.zeros(500)] * 3, [np.zeros(5000)]]))
    assert file.firsts.tolist() == [0, 100, 200, 252, 253, 254]


def test_adding_one_by_one_writes_the_same_file():
    elements = [np.arange(i % 7) for i in range(1000)]
    assert written([[element] for element in elements]) == written([elements])


def test_an_element_that_cannot_be_encoded_is_named():
    writer = ElementsWriter(io.BytesIO())
    writer.add([{"x": 1}, {"x": object()}])
    with pytest.raises(InvalidArgumentError, match=r"element\['x'\] is a object"):
        writer.finish()


# ── damage ───────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def sample() -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elements_file, "RECORD_ELEMENTS", 3)
        return written([[1, 2, 3], ["a", b"b", None], [np.arange(4), 2.5]])


def outcome(data: bytes) -> Any:
    try:
        return [e.tolist() if isinstance(e, np.ndarray) else e for e in read(data)]
    except DataLossError as error:
        return error


def test_a_file_cut_off_anywhere_is_an_error_with_its_offset(sample):
    for length in range(len(sample)):
        error = outcome(sample[:length])
        assert isinstance(error, DataLossError), length
        assert re.search(r"some.elements is damaged at byte \d+: ", str(error))


def test_a_bit_flipped_anywhere_is_an_error_with_its_offset(sample):
    for position in range(len(sample)):
        for bit in (0, 7):
            damaged = bytearray(sample)
            damaged[position] ^= 1 << bit
            error = outcome(bytes(damaged))
            assert isinstance(error, DataLossError), (position, bit)
            assert re.search(r"some.elements is damaged at byte \d+: ", str(error))


@pytest.mark.parametrize("compression", WINDOW_BITS)
def test_a_bit_flipped_in_a_compressed_file_is_an_error(compression):
    data = written([list(range(20))], compression)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 16
        assert isinstance(outcome(bytes(damaged)), DataLossError), position


def test_bytes_after_the_end_are_an_error(sample):
    assert isinstance(outcome(sample + b"\0"), DataLossError)
    assert isinstance(outcome(sample + sample), DataLossError)


def test_another_file_is_an_error():
    with pytest.raises(DataLossError, match=r"some\.elements is damaged at byte"):
        opened(b"PK\3\4" + bytes(100))


# ── several files ────────────────────────────────────────────────────────────────────────────────
class Files(Folder):
    """Element files in memory, with records of three elements; lists the files opened."""

    def __init__(self, elements: list[list[Any]]) -> None:
        super().__init__("some")
        self.data = [written([some]) for some in elements]
        self.files = [StoredFile(str(i), len(some)) for i, some in enumerate(elements)]
        self.opened: list[int] = []

    def open(self, name: str) -> BinaryIO:
        self.opened.append(int(name))
        return io.BytesIO(self.data[int(name)])


@pytest.fixture
def files(monkeypatch) -> Files:
    monkeypatch.setattr(elements_file, "RECORD_ELEMENTS", 3)
    return Files([list(range(8)), [], list(range(8, 12))])


@pytest.fixture
def records_read(monkeypatch) -> list[int]:
    """Return the list to which each record read is appended."""
    found: list[int] = []
    read_record = ElementsFile.read

    def counted(file: ElementsFile, record: int) -> list[Any]:
        found.append(record)
        return read_record(file, record)

    monkeypatch.setattr(ElementsFile, "read", counted)
    return found


def stream(files: Files, ranges: Any = None) -> StoredStream:
    node = Load(path="some", files=tuple(files.files), stored=None)
    splits = None if ranges is None else ScriptedSplits({0: [ranges]})
    context = Context(splits=splits, numbers={node: 0})
    return StoredStream(context, node, files, files.files, UnknownSpec())


def test_several_files_are_one_sequence(files):
    one = stream(files)
    assert [one.next() for _ in range(12)] == list(range(12))
    for _ in range(2):
        with pytest.raises(StopIteration):
            one.next()
        assert one.next_chunk(5, 1000) == []
    assert files.opened == [0, 2]
    one.close()


def test_a_chunk_keeps_to_the_limits_given(files):
    one = stream(files)
    assert one.next_chunk(2, 1 << 20) == [0, 1]
    assert one.next_chunk(9, 1 << 20) == [2]
    assert one.next_chunk(9, 1) == [3]
    one.close()


def test_advance_reads_nothing_it_skips(files, records_read):
    one = stream(files)
    assert one.advance(10) == 10
    assert files.opened == []
    assert one.next() == 10
    assert files.opened == [2]
    assert records_read == [0]
    assert one.advance(10) == 1
    one.close()


def test_ranges_are_read_back_to_back(files):
    one = stream(files, [(7, 9), (3, 3), (2, 4), (0, 1)])
    found = []
    while chunk := one.next_chunk(10, 1 << 20):
        found += chunk
    assert found == [7, 8, 2, 3, 0]
    one.close()


def test_damage_costs_its_own_positions_only(files, records_read):
    damaged = bytearray(files.data[0])
    file = opened(files.data[0])
    damaged[int(file._offsets[1]) + 5] ^= 1
    files.data[0] = bytes(damaged)
    one = stream(files)
    found: list[Any] = []
    for _ in range(12):
        try:
            found.append(one.next())
        except DataLossError:
            found.append("lost")
    assert found == [0, 1, 2, "lost", "lost", "lost", *range(6, 12)]
    assert records_read == [0, 1, 2, 0, 1]
    one.close()


def test_a_file_cut_off_costs_all_its_positions(files):
    files.data[0] = files.data[0][:-1]
    one = stream(files)
    assert one.advance(3) == 3
    for _ in range(5):
        with pytest.raises(DataLossError, match="is damaged at byte"):
            one.next()
    assert one.next_chunk(2, 1 << 20) == [8, 9]
    one.close()


def test_a_file_with_another_count_is_an_error(files):
    files.data[2] = written([[1]])
    one = stream(files)
    one.advance(8)
    with pytest.raises(DataLossError, match="has 1 elements, but 4 were written"):
        one.next()
    one.close()


def test_a_failed_open_costs_one_position(files, monkeypatch):
    def open_file(name: str) -> BinaryIO:
        if name == "0":
            raise OSError("the network is down")
        return io.BytesIO(files.data[int(name)])

    monkeypatch.setattr(files, "open", open_file)
    one = stream(files)
    for _ in range(8):
        with pytest.raises(OSError, match="network"):
            one.next_chunk(3, 1 << 20)
    assert one.next() == 8
    one.close()


def test_a_closed_stream_is_at_its_end(files):
    one = stream(files)
    one.next()
    one.close()
    one.close()
    assert one.next_chunk(3, 1 << 20) == []
    with pytest.raises(StopIteration):
        one.next()
