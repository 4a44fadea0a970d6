"""What surrounds a message on the Unix socket: where its body lies, and what is given back.

An envelope is a prefix, the numbers of loans given back, a table of the parts of the body, and the
header of the message; the bytes of inline parts follow. What `parse` is given may be anything.
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
"""Of one envelope; what is more waits for the next."""

MAX_PARTS = 4096
"""Of one body; a body of more arrays is gathered into fewer."""

INLINE = 0
"""The number of no segment: the part lies behind the envelope."""


class Kind(enum.IntEnum):
    """What an envelope is sent for."""

    MESSAGE = 0
    """Carries a message."""
    RETURNS = 1
    """Only gives loans back."""
    SEGMENT = 2
    """A descriptor comes with it: of the segment of its only part."""
    FORGET = 3
    """The segment of its only part is used no more."""


_KINDS = list(Kind)


class Part(msgspec.Struct, frozen=True):
    """Where a part of a body lies.

    Attributes:
        size: in bytes.
        segment: its number, or `INLINE`.
        loan: the number by which its block is given back.
        offset: in the segment.
    """

    size: int
    segment: int = INLINE
    loan: int = 0
    offset: int = 0


class Return(msgspec.Struct, frozen=True):
    """A loan that is given back; `seen` if a forked child may still see it."""

    loan: int
    seen: bool = False


class Envelope(msgspec.Struct, frozen=True):
    """What is sent at once; the bytes of inline parts follow it."""

    kind: Kind
    header: bytes = b""
    parts: tuple[Part, ...] = ()
    returns: tuple[Return, ...] = ()


class Sizes(msgspec.Struct, frozen=True):
    """What the prefix of an envelope announces."""

    kind: Kind
    returns: int
    parts: int
    header: int

    @property
    def total(self) -> int:
        """Bytes of the whole envelope."""
        tables = self.returns * _RETURN.size + self.parts * _PART.size
        return PREFIX.size + tables + self.header


def pack(envelope: Envelope) -> bytes:
    """The bytes of `envelope`."""
    parts, returns = envelope.parts, envelope.returns
    header = envelope.header
    prefix = PREFIX.pack(_MAGIC, envelope.kind, len(returns), len(parts), len(header))
    if not returns and not parts:
        return prefix + header
    pieces = [_RETURN.pack(back.loan << 1 | back.seen) for back in returns]
    pieces += [_PART.pack(part.segment, part.loan, part.offset, part.size) for part in parts]
    return b"".join([prefix, *pieces, header])


def parse_prefix(data: Buffer, offset: int, max_header_bytes: int) -> Sizes:
    """What the envelope at `offset` consists of.

    Raises:
        WireError: there is no envelope, or one of more than may be received.
    """
    magic, kind, returns, parts, header = PREFIX.unpack_from(data, offset)
    if magic != _MAGIC or kind >= len(_KINDS):
        raise WireError(
            f"the peer does not speak stoker's protocol: expected {_MAGIC!r}, got {magic!r}, {kind}"
        )
    if header > max_header_bytes or returns > MAX_RETURNS or parts > MAX_PARTS:
        raise WireError(
            f"an envelope with a header of {header} bytes, {parts} parts and {returns} returns is "
            f"more than the {max_header_bytes} bytes, {MAX_PARTS} parts and {MAX_RETURNS} allowed"
        )
    return Sizes(_KINDS[kind], returns, parts, header)


def parse(data: Buffer, offset: int, sizes: Sizes) -> Envelope:
    """The envelope at `offset`, all of which is there."""
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
