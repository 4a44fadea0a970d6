"""Framing of messages on the Unix socket: the location of the body, and returned loans.

An envelope is a prefix, the numbers of returned loans, a table of the parts of the body, and the
header of the message; the bytes of inline parts follow. The input of `parse_prefix` is untrusted.
"""

import enum
import struct

import msgspec

from stoker.elements.codec.layout import Buffer
from stoker.errors import WireError

PREFIX = struct.Struct("<4sB3xIII")
_MAGIC = b"stks"
_RETURN = struct.Struct("<Q")
_PART = struct.Struct("<IQQQ")

MAX_RETURNS = 4096
"""Maximum number of returned loans in an envelope; the next envelope carries the rest."""

MAX_PARTS = 4096
"""Maximum number of parts of a body; larger numbers of arrays are gathered into fewer parts."""

INLINE = 0
"""Segment number of a part that follows the envelope on the socket."""


class Kind(enum.IntEnum):
    """Purpose of an envelope."""

    MESSAGE = 0
    """Carries a message."""
    RETURNS = 1
    """Only returns loans."""
    SEGMENT = 2
    """Carries the descriptor of the segment of its only part."""
    FORGET = 3
    """Retires the segment of its only part."""


_KINDS = list(Kind)


class Part(msgspec.Struct, frozen=True):
    """Location of a part of a body.

    Attributes:
        size: in bytes.
        segment: number of the segment, or `INLINE`.
        loan: number with which the client returns the block.
        offset: in the segment, in bytes.
    """

    size: int
    segment: int = INLINE
    loan: int = 0
    offset: int = 0


class Return(msgspec.Struct, frozen=True):
    """A returned loan; `leaked` if a forked child may still see its memory."""

    loan: int
    leaked: bool = False


class Envelope(msgspec.Struct, frozen=True):
    """Unit of sending, followed by the bytes of inline parts."""

    kind: Kind
    header: bytes = b""
    parts: tuple[Part, ...] = ()
    returns: tuple[Return, ...] = ()


class Sizes(msgspec.Struct, frozen=True):
    """Sizes announced by the prefix of an envelope."""

    kind: Kind
    returns: int
    parts: int
    header: int

    @property
    def total(self) -> int:
        """Size of the whole envelope, in bytes."""
        tables = self.returns * _RETURN.size + self.parts * _PART.size
        return PREFIX.size + tables + self.header


def pack(envelope: Envelope) -> bytes:
    """Return the bytes of `envelope`."""
    parts, returns = envelope.parts, envelope.returns
    header = envelope.header
    prefix = PREFIX.pack(_MAGIC, envelope.kind, len(returns), len(parts), len(header))
    if not returns and not parts:
        return prefix + header
    pieces = [_RETURN.pack(loan.loan << 1 | loan.leaked) for loan in returns]
    pieces += [_PART.pack(part.segment, part.loan, part.offset, part.size) for part in parts]
    return b"".join([prefix, *pieces, header])


def parse_prefix(data: Buffer, offset: int, max_header_bytes: int) -> Sizes:
    """Return the sizes in the prefix of the envelope at `offset`.

    Raises:
        WireError: if the bytes are not a prefix, or its sizes exceed the limits.
    """
    magic, kind, returns, parts, header = PREFIX.unpack_from(data, offset)
    if magic != _MAGIC or kind >= len(_KINDS):
        raise WireError(
            f"the peer does not speak stoker's protocol: expected {_MAGIC!r}, got {magic!r}, {kind}"
        )
    if header > max_header_bytes or returns > MAX_RETURNS or parts > MAX_PARTS:
        raise WireError(
            f"an envelope with a header of {header} bytes, {parts} parts and {returns} returns "
            f"exceeds the limits of {max_header_bytes} bytes, {MAX_PARTS} parts and {MAX_RETURNS} "
            f"returns"
        )
    return Sizes(_KINDS[kind], returns, parts, header)


def parse(data: Buffer, offset: int, sizes: Sizes) -> Envelope:
    """Return the envelope at `offset`; `data` must contain the whole envelope."""
    view = memoryview(data)[offset + PREFIX.size : offset + sizes.total]
    if not sizes.returns and not sizes.parts:
        return Envelope(sizes.kind, bytes(view))
    end_of_returns = sizes.returns * _RETURN.size
    end_of_parts = end_of_returns + sizes.parts * _PART.size
    parts = [
        Part(size, segment, loan, start)
        for segment, loan, start, size in _PART.iter_unpack(view[end_of_returns:end_of_parts])
    ]
    returns = [
        Return(number >> 1, bool(number & 1))
        for (number,) in _RETURN.iter_unpack(view[:end_of_returns])
    ]
    return Envelope(sizes.kind, bytes(view[end_of_parts:]), tuple(parts), tuple(returns))
