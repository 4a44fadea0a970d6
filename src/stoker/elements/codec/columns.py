"""Description of a frame's elements: a tree of columns, each with one value per element.

The header has this tree; the body has the values, one buffer after another, in the order in which
a walk visits the columns (parents first, children from left to right). Offsets are not encoded:
both sides compute them, so buffers cannot overlap or point outside the body.

Every value takes at least one byte of the body (`filler` for values without data), so a header
cannot claim more values than its body has.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

from stoker.elements.codec.dtypes import WireDtype

# Maximum nesting depth of an element.
MAX_DEPTH = 64

# Size from which buffers are sent from their memory, and decoded as views, without a copy.
LARGE_BYTES = 64 << 10

# Encoding and error handler of text: UTF-8, or the bytes of a file name that is not UTF-8.
TEXT = "utf-8", "surrogateescape"

Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Nones(msgspec.Struct, frozen=True, array_like=True, tag="none"):
    """None. Body: filler."""


class Numbers(msgspec.Struct, frozen=True, array_like=True, tag="number"):
    """Python bools, ints in the range of int64, floats or complex numbers. Body: their bytes."""

    dtype: Literal["|b1", "<i8", "<f8", "<c16"]


class BigInts(msgspec.Struct, frozen=True, array_like=True, tag="bigint"):
    """Python ints of any size. Body: lengths, then two's complements, little-endian."""


class Strs(msgspec.Struct, frozen=True, array_like=True, tag="str"):
    """str, or `numpy.str_`. Body: lengths in bytes, then `TEXT`."""

    numpy: bool = False


class Blobs(msgspec.Struct, frozen=True, array_like=True, tag="bytes"):
    """bytes, or `numpy.bytes_`. Body: lengths, then the bytes."""

    numpy: bool = False


class Scalars(msgspec.Struct, frozen=True, array_like=True, tag="scalar"):
    """NumPy scalars of a common dtype. Body: their bytes."""

    dtype: WireDtype


class Arrays(msgspec.Struct, frozen=True, array_like=True, tag="array"):
    """Arrays of a common dtype and shape. Body: concatenated, or a buffer for each if large."""

    dtype: WireDtype
    shape: list[Size]
    fortran: bool = False


class VariedArrays(msgspec.Struct, frozen=True, array_like=True, tag="arrays"):
    """Arrays of a common dtype and rank, of different shapes, all large or all small.

    Body: shapes, then as `Arrays`.
    """

    dtype: WireDtype
    rank: Annotated[int, msgspec.Meta(ge=1, le=64)]
    large: bool
    fortran: bool = False


class ObjectArrays(msgspec.Struct, frozen=True, array_like=True, tag="object"):
    """Object arrays of a common rank; `items` has the str, bytes and None of all. Body: shapes."""

    rank: Annotated[int, msgspec.Meta(ge=0, le=64)]
    items: "Column"
    fortran: bool = False


class Items(msgspec.Struct, frozen=True, array_like=True, tag="items"):
    """Tuples or lists of a common length: a column for each index."""

    sequence: Literal["tuple", "list"]
    places: list["Column"]


class Sequences(msgspec.Struct, frozen=True, array_like=True, tag="sequence"):
    """Tuples or lists of different or great lengths; `items` has all items. Body: lengths."""

    sequence: Literal["tuple", "list"]
    items: "Column"


class Dicts(msgspec.Struct, frozen=True, array_like=True, tag="dict"):
    """Dicts with the same keys in the same order: a column for each key."""

    keys: list[str | int]
    values: list["Column"]


class NamedRecords(msgspec.Struct, frozen=True, array_like=True, tag="record"):
    """Namedtuples or dataclasses with the same name and fields: a column for each field."""

    kind: Literal["namedtuple", "dataclass"]
    name: str
    fields: list[str]
    values: list["Column"]


class Raggeds(msgspec.Struct, frozen=True, array_like=True, tag="ragged"):
    """RaggedArrays: a column for each of their arrays."""

    values: "Column"
    row_splits: "Column"


class Sparses(msgspec.Struct, frozen=True, array_like=True, tag="sparse"):
    """SparseArrays: a column for each of their arrays."""

    indices: "Column"
    values: "Column"
    dense_shape: "Column"


class Mixed(msgspec.Struct, frozen=True, array_like=True, tag="mixed"):
    """Values of several kinds: a column for each kind. Body: each value's column number."""

    variants: list["Column"]


Column: TypeAlias = (
    Nones
    | Numbers
    | BigInts
    | Strs
    | Blobs
    | Scalars
    | Arrays
    | VariedArrays
    | ObjectArrays
    | Items
    | Sequences
    | Dicts
    | NamedRecords
    | Raggeds
    | Sparses
    | Mixed
)
