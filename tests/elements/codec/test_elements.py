import dataclasses
import enum
import struct
from collections import OrderedDict, namedtuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from stoker.elements.codec.columns import LARGE_BYTES
from stoker.elements.codec.elements import TypeResolver
from stoker.elements.codec.encodable import encodable_bytes
from stoker.elements.ragged import RaggedArray
from stoker.elements.sizes import chunk_bytes
from stoker.elements.sparse import SparseArray
from stoker.errors import InvalidArgumentError
from stoker.wire.frames import Frame, encode
from tests.wire.elements import Point, Sample, exact, frames_of_elements, travel


@settings(max_examples=400)
@given(frames_of_elements())
def test_every_element_is_decoded_unchanged(elements):
    assert [exact(element) for element in travel(elements)] == [exact(e) for e in elements]


@settings(max_examples=200)
@given(frames_of_elements())
def test_encodable_bytes_returns_the_size_of_the_chunk(elements):
    assert encodable_bytes(elements) == chunk_bytes(elements)


@pytest.mark.parametrize(
    "element",
    [
        7,
        True,
        2**63,
        -(2**500),
        -0.0,
        1j,
        "",
        "snow ☃ \0",
        "caf\udce9.txt",
        ["\udcc3", "\udca9"],
        np.str_("\udcff"),
        b"\0\xff",
        None,
        np.float32(1.5),
        np.bool_(True),
        np.str_("é"),
        np.bytes_(b"x"),
        np.datetime64("2024-02-29T12", "h"),
        np.timedelta64("NaT"),
        ml_dtypes.bfloat16(1.5),
        np.array(3.5),
        np.zeros((2, 0, 3), np.int8),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.asfortranarray(np.ones((300, 400), ">i4")),
        np.arange(12)[::-3],
        np.arange(5, dtype=">u2"),
        np.array(["2024-01-01", "NaT"], "M8[D]"),
        np.array([(1, [2.0, 3.0])], [("a", "i2"), ("b", "f4", (2,))]),
        np.array([1, 2], ml_dtypes.bfloat16),
        np.array([["a", None], [b"\0", "é"]], object),
        np.array("x", object),
        np.array(["ab", ""]),
        {"b": 1, "a": {3: [], -1: ()}},
        Point(1, Sample("image", (None,))),
        RaggedArray.from_rows([[1, 2], [], [3]]),
        SparseArray.from_dense([[0, 7], [0, 0]]),
        list(range(100)),
    ],
    ids=repr,
)
def test_an_element_keeps_type_bits_and_layout(element):
    assert list(map(exact, travel([element]))) == [exact(element)]
    assert list(map(exact, travel([element] * 3))) == [exact(element)] * 3


def test_nan_payloads_are_kept():
    bits = struct.pack("<d", struct.unpack("<d", b"\x01\x02\x03\0\0\0\xf0\x7f")[0])
    single = np.frombuffer(b"\x01\0\x80\x7f", np.float32)[0]
    double, got_single = travel([struct.unpack("<d", bits)[0], single])
    assert struct.pack("<d", double) == bits
    assert got_single.tobytes() == b"\x01\0\x80\x7f"


def test_values_of_mixed_kinds_keep_their_order():
    elements = [1, "a", None, 2, [3], "b", {"k": 1}, {"j": 1}, {"k": 2}, True, 1.0, (), np.int64(1)]
    assert list(map(exact, travel(elements))) == list(map(exact, elements))


def test_dicts_with_equal_keys_of_other_types_stay_separate():
    elements = [{1: "int"}, {"1": "str"}, {1: "again"}]
    assert travel(elements) == elements


def test_read_only_arrays_of_any_size_are_decoded_writable():
    for size in (3, LARGE_BYTES):
        array = np.arange(size, dtype=np.uint8)
        array.flags.writeable = False
        (got,) = travel([array])
        got[0] = 9
        assert got[0] == 9
        assert array[0] == 0


def test_large_arrays_are_not_copied_by_the_encoder():
    array = np.zeros(LARGE_BYTES, np.uint8)
    fortran = np.zeros((512, 512), np.float32, order="F")
    buffers = encode(Frame(0, [(array, fortran)]))
    shared = [
        np.shares_memory(np.frombuffer(b, np.uint8), a) for a in (array, fortran) for b in buffers
    ]
    assert sum(shared) == 2


def test_only_large_arrays_are_views_of_the_body():
    large, also, small = travel([np.zeros(LARGE_BYTES), np.ones(LARGE_BYTES), np.zeros(10)])
    assert large.base is also.base is not None
    assert small.base is None
    assert not np.shares_memory(large, also)
    assert large.ctypes.data % 8 == 0


def test_small_arrays_of_one_shape_do_not_share_memory():
    first, second = travel([np.zeros(10), np.zeros(10)])
    first[:] = 1
    assert second.sum() == 0


def test_many_ints_are_one_buffer():
    assert len(encode(Frame(0, list(range(50_000))))) == 2


def test_arrays_of_different_shapes_are_one_column():
    arrays = [np.arange(n, dtype=np.int16) for n in (3, 0, 5)] * 50
    header = encode(Frame(0, arrays))[0]
    assert len(header) < 100
    assert list(map(exact, travel(arrays))) == list(map(exact, arrays))


def test_records_get_the_readers_class_of_that_name_and_fields():
    Other = namedtuple("Point", "x y")  # type: ignore[name-match] # noqa: PYI024
    (element,) = travel([Point(1, Sample(2, 3))], TypeResolver({"spec": [Other(None, None)]}))
    assert type(element) is Other
    assert type(element.y) is not Sample
    assert (element.y.image, element.y.label) == (2, 3)


def test_records_of_an_unknown_class_share_one_generated_class():
    first, second = (travel([Point(1, 2)], TypeResolver())[0] for _ in range(2))
    assert type(first) is type(second) is not Point
    assert type(first).__name__ == "Point"
    assert first == (1, 2)


def test_decoding_a_dataclass_does_not_call_init():
    made = []

    @dataclasses.dataclass
    class Counted:
        value: int
        double: int = dataclasses.field(init=False)

        def __post_init__(self):
            made.append(self)
            self.double = 2 * self.value

    element = Counted(3)
    (got,) = travel([element], TypeResolver(element))
    assert type(got) is Counted
    assert (got.value, got.double) == (3, 6)
    assert made == [element]


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (
            {"a": [1, {2, 3}]},
            r"element\['a'\]\[1\] is a set, which cannot be serialized; return arrays",
        ),
        pytest.param(
            (object(),), r"element\[0\] is a object, which cannot be serialized", id="an object"
        ),
        (
            Sample(Colour.RED, 0),
            r"element\.image is a .*Colour, which cannot be serialized.*int\(...\)",
        ),
        (OrderedDict(a=1), r"OrderedDict, which cannot be serialized; convert it with dict"),
        ([np.ma.masked_array([1])], r"element\[0\] is a .*MaskedArray.*np\.asarray"),
        ("\ud800", r"element is the str '\\ud800', which cannot be encoded.*surrogateescape"),
        ({"x": ["\ud8ff"] * 30}, r"element\['x'\]\[\.\.\.\] is the str"),
        ("\udcc3\udca9", r"element is the str '\\udcc3\\udca9', which cannot be encoded"),
        ({"\udcff": 0}, r"a key of element is the str"),
        ({1.5: 0}, r"element is a dict with the key 1\.5, a float; keys must be str or int"),
        ({True: 0}, r"dict with the key True, a bool"),
        ({2**64: 0}, r"beyond int64"),
        (np.array([1, "a"], object), r"object array that holds a int; object arrays may hold only"),
        (
            np.array(["a"], np.dtypes.StringDType()),
            r"element: dtype StringDType\(\) cannot be serialized",
        ),
        (np.zeros(1, [("o", object)]), r"cannot be serialized"),
        (int, r"element is a type"),
    ],
    ids=str,
)
def test_the_error_names_type_place_and_remedy(element, message):
    with pytest.raises(InvalidArgumentError, match=message):
        encode(Frame(0, [element]))
    with pytest.raises(InvalidArgumentError, match=message):
        encodable_bytes([element])


def test_one_invalid_element_is_found_among_valid_ones():
    for bad in ("\ud800", np.array([1, "a"], object), {1.5: 0}, {3}):
        with pytest.raises(InvalidArgumentError):
            encodable_bytes([("a", np.zeros(3), {"x": 1}, b"")] * 9 + [("a", bad, {"x": 1}, b"")])


def test_an_element_that_contains_itself_is_refused():
    element: list = []
    element.append(element)
    with pytest.raises(InvalidArgumentError, match="contains itself"):
        encodable_bytes([element])
    with pytest.raises(InvalidArgumentError, match="nested more than 64 deep, or contains itself"):
        encode(Frame(0, [element]))


def test_an_element_nested_64_deep_is_encoded():
    element: list = []
    for _ in range(63):
        element = [element]
    assert travel([element]) == [element]
