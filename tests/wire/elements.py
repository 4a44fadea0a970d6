"""Elements of every type that may travel, for hypothesis; and equality that is exact."""

import dataclasses
import struct
from collections import namedtuple
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from stoker.elements.codec.elements import TypeResolver
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.wire.frames import PREFIX, Frame, decode, encode, parse_prefix

Point = namedtuple("Point", "x y")  # noqa: PYI024


@dataclasses.dataclass(frozen=True)
class Sample:
    image: Any
    label: Any


@dataclasses.dataclass
class Nothing:
    """A dataclass without fields."""


TYPES = TypeResolver((Point(None, Sample(None, None)), Nothing()))


def message_bytes(message) -> bytes:
    return b"".join(map(bytes, encode(message)))


def parse(data: bytes, types: TypeResolver = TYPES, max_body_bytes: int = 1 << 30):
    """The message in `data`, which is all of it."""
    header, body = parse_prefix(data, max_body_bytes)
    end = PREFIX.size + header
    assert len(data) == end + body
    return decode(data[PREFIX.size : end], bytearray(data[end:]) if body else None, types)


def travel(elements: list[Any], types: TypeResolver = TYPES) -> list[Any]:
    """`elements` after their way over the wire."""
    return parse(message_bytes(Frame(0, elements)), types).elements


def exact(value: Any) -> Any:
    """A plain value that differs whenever two elements differ in type, bits, order or layout."""
    kind = type(value)
    if kind is np.ndarray or kind is np.memmap:
        if value.dtype == object:
            data: Any = [exact(item) for item in value.reshape(-1).tolist()]
        else:
            data = _bits(value)
        fortran = bool(value.ndim > 1 and value.flags.fnc)
        return ("array", value.dtype.str, repr(value.dtype), value.shape, fortran, data)
    if isinstance(value, np.str_ | np.bytes_):
        return (kind.__name__, value.item())
    if isinstance(value, np.generic):
        return (kind.__name__, repr(value.dtype), _bits(value))
    if kind is float:
        return ("float", struct.pack("<d", value))
    if kind is complex:
        return ("complex", struct.pack("<dd", value.real, value.imag))
    if kind in (RaggedArray, SparseArray) or dataclasses.is_dataclass(kind):
        fields = [exact(getattr(value, field.name)) for field in dataclasses.fields(kind)]
        return (kind, fields)
    if isinstance(value, tuple | list):
        return (kind, [exact(item) for item in value])
    if kind is dict:
        return ("dict", [(exact(key), exact(item)) for key, item in value.items()])
    return (kind, value)


def _bits(value: np.ndarray | np.generic) -> Any:
    # What lies in the padding between fields is nobody's.
    return value.tobytes() if value.dtype.names is None else repr(value.tolist())


def _structured() -> np.dtype:
    inner = np.dtype([("u", "<u2"), ("t", "<M8[s]")])
    return np.dtype([("a", "i1"), ("b", ">f8", (2,)), ("c", inner), ("s", "<U3")], align=True)


DTYPES = [
    *(np.dtype(code) for code in "?bBhHiIlLefdFDgG"),
    *(np.dtype(code) for code in (">i2", ">u8", ">f4", ">c16", ">U2", ">M8[ms]")),
    *(
        np.dtype(code)
        for code in ("M8[ns]", "M8[25s]", "m8[D]", "m8", "S3", "U5", "V7", "S1", "U1")
    ),
    *(np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "int4")),
    _structured(),
    np.dtype({"names": ["x", "y"], "formats": ["<i4", "<i4"], "offsets": [4, 2], "itemsize": 12}),
]


@st.composite
def arrays(draw, min_dims: int = 0) -> np.ndarray:
    """Any bits of any dtype, in C order, Fortran order, or strided; writable or not."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(hnp.array_shapes(min_dims=min_dims, max_dims=3, min_side=0, max_side=3))
    shape = draw(st.sampled_from([shape, shape[:1], shape[: max(min_dims, 0)]]))
    count = int(np.prod(shape, dtype=int))
    data = np.zeros(count * dtype.itemsize, np.uint8)
    if dtype.kind not in "U?" and dtype.names is None:
        # Other bits would be no code points, and no bools.
        data[:] = np.frombuffer(draw(st.binary(min_size=data.size, max_size=data.size)), np.uint8)
    elif dtype.kind == "?":
        data[:] = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    array = data.view(dtype).reshape(shape) if count else np.zeros(shape, dtype)
    layout = draw(st.sampled_from(["C", "F", "reversed", "readonly"]))
    if layout == "F":
        array = np.asfortranarray(array) if array.ndim else array
    elif layout == "reversed" and array.ndim:
        array = array[::-1]
    elif layout == "readonly":
        array.flags.writeable = False
    return array


def _numpy_scalars() -> st.SearchStrategy[Any]:
    filled = arrays(min_dims=1).filter(lambda array: array.size > 0)
    return st.one_of(
        filled.map(lambda array: array.reshape(-1)[0]),
        st.text(max_size=4).map(np.str_),
        st.binary(max_size=4).map(np.bytes_),
    )


def _object_arrays() -> st.SearchStrategy[np.ndarray]:
    items = st.one_of(st.none(), st.text(max_size=3), st.binary(max_size=3))
    return hnp.arrays(
        np.dtype(object),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=2),
        elements=items,
        fill=st.nothing(),
    ).map(lambda array: np.asfortranarray(array) if array.ndim > 1 else array)


_CHARACTERS = st.characters(exclude_categories=["Cs"])


def leaves() -> st.SearchStrategy[Any]:
    """Every leaf there is."""
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(2**200), 2**200),
        st.sampled_from([-0.0, 0, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1]),
        st.floats(),
        st.binary(min_size=8, max_size=8).map(lambda bits: struct.unpack("<d", bits)[0]),
        st.complex_numbers(),
        st.text(_CHARACTERS, max_size=8),
        st.binary(max_size=8),
        _numpy_scalars(),
        arrays(),
        _object_arrays(),
        st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3).map(
            lambda rows: RaggedArray.from_rows(rows, dtype=np.int32)
        ),
        st.lists(
            st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3), min_size=1, max_size=3
        ).map(_deep),
        hnp.arrays(np.float32, (2, 3), elements=st.sampled_from([0, 1, 2])).map(
            SparseArray.from_dense
        ),
    )


def _deep(rows: list[list[list[int]]]) -> RaggedArray:
    values = RaggedArray.from_rows([item for row in rows for item in row], dtype=np.int16)
    return RaggedArray(values, np.cumsum([0, *map(len, rows)]))


def _containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.lists(children, min_size=17, max_size=20).map(tuple),
        st.dictionaries(
            st.one_of(st.text(_CHARACTERS, max_size=3), st.integers(-(2**63), 2**63 - 1)),
            children,
            max_size=3,
        ),
        st.builds(Point, children, children),
        st.builds(Sample, children, children),
        st.builds(Nothing),
    )


def elements() -> st.SearchStrategy[Any]:
    """Leaves in any structure."""
    return st.recursive(leaves(), _containers, max_leaves=6)


def frames_of_elements() -> st.SearchStrategy[list[Any]]:
    """Different elements; or many of one structure, which travel as columns."""
    same = elements().flatmap(lambda element: st.integers(1, 4).map(lambda n: [element] * n))
    return st.one_of(same, st.lists(elements(), min_size=1, max_size=5))
