"""Encoding of elements to columns, and decoding.

Exact for everything that an element can have: int of any size, float, bool, complex, str, bytes,
None; NumPy scalars and arrays of every dtype, ml_dtypes' too; object arrays of str, bytes and None;
tuples, lists, dicts, namedtuples, dataclasses; `RaggedArray`, `SparseArray`. Decoded arrays are
writable and in the memory order of the original. C's longlong becomes the equal int64.
There is no pickle, and the peer names no class to import.
"""

from typing import Any

from stoker.elements.codec.columns import Column
from stoker.elements.codec.decoder import ElementDecoder
from stoker.elements.codec.encoder import ElementEncoder
from stoker.elements.codec.layout import Body, BodyReader, Buffer
from stoker.elements.codec.records import TypeResolver
from stoker.errors import WireError

__all__ = ["TypeResolver", "decode_elements", "encode_elements"]


# The codec is below `wire` and `dataset`: files store elements in the form of frames.
# (docs/decisions/080)
def encode_elements(elements: list[Any]) -> tuple[Column, list[Buffer], int]:
    """Return the description of `elements`, the buffers of their body, and its size in bytes.

    Large contiguous arrays are not copied: the buffers refer to their memory.

    Raises:
        InvalidArgumentError: if a value cannot be serialized; the message names its type and place.
    """
    encoder = ElementEncoder()
    column = encoder.column(elements, "element", 0)
    return column, encoder.body.buffers, encoder.body.size


def decode_elements(column: Column, count: int, body: Body, types: TypeResolver) -> list[Any]:
    """Return the `count` elements that `column` describes.

    Arrays of 64 KiB and more are views into a writable `body`; all else is copied.

    Raises:
        WireError: if description and body do not match. Memory is allocated in proportion to
            `body`, not to what the description claims.
        FailedPreconditionError: if ml_dtypes is needed and not installed.
    """
    reader = BodyReader(body)
    try:
        elements = ElementDecoder(reader, types).column(column, count, 0)
        reader.finish()
    except WireError:
        raise
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        # NumPy and Python refuse impossible shapes, dtypes and UTF-8 with these.
        raise WireError(f"a frame that cannot be decoded: {error}") from error
    return elements
