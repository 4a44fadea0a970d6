"""The messages of the data plane, and the bytes of one.

A message on the wire is a prefix (magic, header length, body length), a msgpack header and a body
of raw buffers. Only `Frame` has a body, compressed if the header names a codec. What `decode` is
given may be anything at all.
"""

import struct
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import msgspec

from stoker.elements.codec.columns import Column
from stoker.elements.codec.elements import TypeResolver, decode_elements, encode_elements
from stoker.elements.codec.layout import Body, Buffer, body_size, empty_body
from stoker.errors import ErrorRecord, FailedPreconditionError, WireError
from stoker.wire import compression

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1

MAX_HEADER_BYTES = 16 << 20
"""No header is longer; both sides refuse one that claims to be."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Client to worker, first: who reads which task, and the first frame it has not received.

    `attempt` grows with each connection of the client to the task: one that arrives late, after a
    newer one, is told apart. A `metered` client wants to hear `Ready`. `compression` is "AUTO",
    the name of a codec or ``None``: a request, which the worker follows frame by frame as it can.
    """

    protocol_min: int
    protocol_max: int
    client_id: int
    task_id: int
    next_frame: Count
    trainer: str = ""
    attempt: Count = 0
    metered: bool = False
    compression: str | None = None


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Worker to client, in answer to `Hello`: the version both speak from here on.

    Whatever its credit, the worker keeps no more than about `buffer_bytes` sent and not consumed.
    """

    protocol: int
    worker: str
    buffer_bytes: Count = 0


class Credit(msgspec.Struct, frozen=True, tag=True):
    """Client to worker: frames before `consumed` may be dropped; what may be sent.

    At most `elements` positions in all on this connection, from its beginning; and while less than
    about `bytes` bytes are sent and not consumed (one frame may exceed them).
    """

    consumed: Count
    elements: Count
    bytes: Count


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Worker to a metered client: this many elements wait for credit.

    Or none does: then the worker gives back what it has of credit, `returned`, for others to use.
    """

    elements: Count
    returned: Count = 0


class Frame(msgspec.Struct, frozen=True, eq=False):
    """Worker to client: consecutive elements of one task; or the error at one position.

    `nbytes` is what they count for against the bytes of `Credit`. A `shared` frame's elements are
    sent to other clients too, so the receiver must not get their memory; the flag does not travel.
    """

    number: int
    elements: list[Any]
    error: ErrorRecord | None = None
    nbytes: int = 0
    shared: bool = False


class Counts(msgspec.Struct, frozen=True, tag=True):
    """Worker to client: what the task has counted since it began, such as ``errors_ignored``.

    Said when it changes, after frames and before `End`, and again on each connection.
    """

    counts: dict[str, Count]


class End(msgspec.Struct, frozen=True, tag=True):
    """Worker to client: the task has ended after `frames` frames for this client."""

    frames: Count


class GiveBack(msgspec.Struct, frozen=True, tag=True):
    """Client to worker, before it closes: it has consumed the frames before `frame`.

    And the first `taken` elements of that one; the rest goes back to the task.
    """

    frame: Count
    taken: Count


class Bye(msgspec.Struct, frozen=True, tag=True):
    """Either way: the sender will not go on, and why."""

    error: ErrorRecord | None = None


class FrameHeader(msgspec.Struct, frozen=True, tag="Frame", omit_defaults=True):
    """`Frame` as its header: `column` describes the elements, whose values are in the body.

    With a `codec` the body is compressed, and has `size` bytes once it is not.
    """

    number: Count
    count: Count
    column: Column | None = None
    error: ErrorRecord | None = None
    nbytes: Count = 0
    codec: str | None = None
    size: Count = 0


Message: TypeAlias = Hello | Welcome | Credit | Ready | Frame | Counts | End | GiveBack | Bye

PREFIX = struct.Struct("<4sIQ")
_MAGIC = b"stk1"
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    Hello | Welcome | Credit | Ready | FrameHeader | Counts | End | GiveBack | Bye
)
_DEFAULT_TYPES = TypeResolver()

Pack: TypeAlias = Callable[[list[Buffer], int], tuple[str, Buffer] | None]
"""Compresses the buffers of a body of so many bytes; ``None``: it is to travel as it is."""


def negotiate(theirs_min: int, theirs_max: int) -> int:
    """The newest protocol version that both sides speak.

    Raises:
        FailedPreconditionError: there is none.
    """
    version = min(PROTOCOL_MAX, theirs_max)
    if version < max(PROTOCOL_MIN, theirs_min):
        raise FailedPreconditionError(
            f"no common protocol version: this side speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}, the "
            f"other {theirs_min} to {theirs_max}; install the same stoker version on both"
        )
    return version


def encode(message: Message, pack: Pack | None = None) -> list[Buffer]:
    """The bytes of `message`: prefix and header first, then the buffers of the body.

    Large arrays are not copied: the result refers to their memory until it is sent. Bodies are
    offered to `pack`, if there is one.

    Raises:
        InvalidArgumentError: an element holds a value that cannot travel; names its type and place.
    """
    if not isinstance(message, Frame):
        header = _ENCODER.encode(message)
        return [PREFIX.pack(_MAGIC, len(header), 0) + header]
    column, body, size = encode_elements(message.elements) if message.elements else (None, [], 0)
    description = FrameHeader(
        message.number, len(message.elements), column, message.error, message.nbytes
    )
    if pack is not None and (packed := pack(body, size)) is not None:
        codec, data = packed
        description = msgspec.structs.replace(description, codec=codec, size=size)
        body, size = [data], memoryview(data).nbytes
    header = _ENCODER.encode(description)
    if len(header) > MAX_HEADER_BYTES:
        raise FailedPreconditionError(
            f"the structure of frame {message.number} takes {len(header)} bytes, more than "
            f"{MAX_HEADER_BYTES}: its {len(message.elements)} elements have too many different "
            f"keys or classes; return elements of one structure"
        )
    return [PREFIX.pack(_MAGIC, len(header), size) + header, *body]


def parse_prefix(prefix: Buffer, max_body_bytes: int) -> tuple[int, int]:
    """Lengths of the header and the body that follow `prefix`.

    Raises:
        WireError: it is not a prefix, or announces more than may be received.
    """
    magic, header, body = PREFIX.unpack_from(prefix)
    if magic != _MAGIC:
        raise WireError(
            f"the peer does not speak stoker's protocol: expected {_MAGIC!r}, got {magic!r}"
        )
    if header > MAX_HEADER_BYTES:
        raise WireError(f"a header of {header} bytes is longer than the {MAX_HEADER_BYTES} allowed")
    if body > max_body_bytes:
        raise WireError(f"a body of {body} bytes is longer than the {max_body_bytes} allowed here")
    return header, body


def decode(
    header: Buffer,
    body: Body | None = None,
    types: TypeResolver = _DEFAULT_TYPES,
    *,
    max_body_bytes: int = compression.MAX_BYTES,
    allocate: compression.Allocate = empty_body,
) -> Message:
    """The message of a header (without prefix) and its body.

    Large arrays are views into the body where it is writable.

    Args:
        header: as it arrived.
        body: as it arrived, in one piece or in parts.
        types: rebuilds namedtuples and dataclasses.
        max_body_bytes: a compressed body that claims to be larger is refused.
        allocate: gives memory to decompress into.

    Raises:
        WireError: these bytes are not a message.
    """
    try:
        parsed = _DECODER.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a header of stoker's protocol: {error}") from error
    size = 0 if body is None else body_size(body)
    if not isinstance(parsed, FrameHeader):
        if size:
            raise WireError(f"a {type(parsed).__name__} message with a body of {size} bytes")
        message: Message = parsed
        return message
    if parsed.codec is not None and body is not None:
        body = _decompressed(parsed, body, max_body_bytes, allocate)
    elements: list[Any] = []
    if parsed.column is not None and body is not None:
        elements = decode_elements(parsed.column, parsed.count, body, types)
    elif parsed.count or size or parsed.column is not None:
        raise WireError(
            f"frame {parsed.number} claims {parsed.count} elements, its body has {size} bytes"
        )
    return Frame(parsed.number, elements, parsed.error, parsed.nbytes)


def _decompressed(
    header: FrameHeader, body: Body, max_body_bytes: int, allocate: compression.Allocate
) -> memoryview:
    limit = min(max_body_bytes, compression.MAX_BYTES)
    if not 0 < header.size <= limit:
        raise WireError(
            f"frame {header.number} claims a body of {header.size} bytes, compressed to "
            f"{body_size(body)}; up to {limit} are allowed here"
        )
    return compression.decompress(header.codec or "", body, header.size, allocate)
