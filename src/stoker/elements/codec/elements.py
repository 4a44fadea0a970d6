"""Elements to columns and back: the whole of it in two functions.

Exact for everything that may be in an element: int of any size, float, bool, complex, str, bytes,
None; NumPy scalars and arrays of every dtype, ml_dtypes' too; object arrays of str, bytes and None;
tuples, lists, dicts, namedtuples, dataclasses; `RaggedArray`, `SparseArray`. Arrays arrive
writable and in the memory order they left in. C's longlong arrives as the int64 it equals.
No pickle, and no class is named by the peer.
"""

from typing import Any

from stoker.elements.codec.columns import Column
from stoker.elements.codec.decoder import ElementDecoder
from stoker.elements.codec.encoder import ElementEncoder
from stoker.elements.codec.layout import Body, BodyReader, Buffer
from stoker.elements.codec.records import TypeResolver
from stoker.errors import WireError

__all__ = ["TypeResolver", "decode_elements", "encode_elements"]


def encode_elements(elements: list[Any]) -> tuple[Column, list[Buffer], int]:
    """The description of `elements`, the buffers of their body, and the body's size in bytes.

    Large contiguous arrays are not copied: the buffers refer to their memory.

    Raises:
        InvalidArgumentError: something in an element cannot travel; names its type and place.
    """
    encoder = ElementEncoder()
    column = encoder.column(elements, "element", 0)
    return column, encoder.body.buffers, encoder.body.size


def decode_elements(column: Column, count: int, body: Body, types: TypeResolver) -> list[Any]:
    """The `count` elements that `column` describes and `body` holds.

    Arrays of 64 KiB and more are views into `body` if it is writable; all else is copied out.

    Raises:
        WireError: description and body do not fit together. Memory is taken in proportion to
            `body`, whatever the description claims.
        FailedPreconditionError: ml_dtypes is needed and not installed.
    """
    reader = BodyReader(body)
    try:
        elements = ElementDecoder(reader, types).column(column, count, 0)
        reader.finish()
    except WireError:
        raise
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        # NumPy's and Python's own refusals of impossible shapes, dtypes, UTF-8.
        raise WireError(f"a frame that cannot be decoded: {error}") from error
    return elements
