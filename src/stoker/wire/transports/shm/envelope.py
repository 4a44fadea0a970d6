"""Framing of messages on the Unix socket: the location of the body, and returned loans.

An envelope is a prefix with its size, and a msgpack array: its kind, the header of the message, a
table of the parts of the body, and the numbers of returned loans; the bytes of inline parts follow.
The input of `parse_prefix` and `parse` is untrusted.
"""

import enum
import struct
from typing import Annotated

import msgspec

from stoker.elements.codec.layout import Buffer
from stoker.errors import WireError

PREFIX = struct.Struct("<4sI")
_MAGIC = b"stks"

MAX_RETURNS = 4096
"""Maximum number of returned loans in an envelope; the next envelope carries the rest."""

MAX_PARTS = 4096
"""Maximum number of parts of a body; larger numbers of arrays are gathered into fewer parts."""

_MAX_TABLES_BYTES = 36 * MAX_PARTS + 12 * MAX_RETURNS + 16  # at most 9 bytes for each number

INLINE = 0
"""Segment number of a part that follows the envelope on the socket."""

# A negative offset would be a place before the segment.
_Count = Annotated[int, msgspec.Meta(ge=0)]


class EnvelopeKind(enum.IntEnum):
    """Purpose of an envelope."""

    MESSAGE = 0
    """Carries a message."""
    RETURNS = 1
    """Only returns loans."""
    SEGMENT = 2
    """Carries the descriptor of the segment of its only part."""
    FORGET = 3
    """Retires the segment of its only part."""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Location of a part of a body.

    Attributes:
        size: in bytes.
        segment: number of the segment, or `INLINE`.
        loan: number with which the client returns the block.
        offset: in the segment, in bytes.
    """

    size: _Count
    segment: _Count = INLINE
    loan: _Count = 0
    offset: _Count = 0


class Return(msgspec.Struct, frozen=True, array_like=True):
    """A returned loan; `leaked` if a forked child may still see its memory."""

    loan: _Count
    leaked: bool = False


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """Unit of sending, followed by the bytes of inline parts."""

    kind: EnvelopeKind
    header: bytes = b""
    parts: Annotated[tuple[Part, ...], msgspec.Meta(max_length=MAX_PARTS)] = ()
    returns: Annotated[tuple[Return, ...], msgspec.Meta(max_length=MAX_RETURNS)] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def pack(envelope: Envelope) -> bytes:
    """Return the bytes of `envelope`."""
    data = _encoder.encode(envelope)
    return PREFIX.pack(_MAGIC, len(data)) + data


def parse_prefix(data: Buffer, offset: int, max_header_bytes: int) -> int:
    """Return the size of the envelope at `offset`, with its prefix.

    Raises:
        WireError: if the bytes are not a prefix, or the size exceeds the limits.
    """
    magic, size = PREFIX.unpack_from(data, offset)
    if magic != _MAGIC:
        raise WireError(
            f"the peer does not speak stoker's protocol: expected {_MAGIC!r}, got {magic!r}"
        )
    limit = max_header_bytes + _MAX_TABLES_BYTES
    if size > limit:
        raise WireError(f"an envelope of {size} bytes exceeds the limit of {limit} bytes")
    return PREFIX.size + int(size)


def parse(data: Buffer, offset: int, size: int) -> Envelope:
    """Return the envelope of `size` bytes at `offset`.

    Raises:
        WireError: if the bytes are not an envelope, or it has too many parts or returns.
    """
    try:
        return _decoder.decode(memoryview(data)[offset + PREFIX.size : offset + size])
    except msgspec.MsgspecError as error:
        raise WireError(f"an invalid envelope: {error}") from error
