"""The messages of the data plane and their encoding.

A message on the wire is a prefix (magic, header length, body length), a msgpack header and a body
of raw buffers. Only `Frame` has a body, compressed if the header names a codec. The input of
`decode` is untrusted.
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

# Maximum length of a header; both sides refuse longer ones.
MAX_HEADER_BYTES = 16 << 20

# Exceptions of a decoder of msgspec whose input is not valid, such as text that is no UTF-8.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Client to worker, first: the client, its task, and the first frame not received.

    `attempt` grows with each connection of the client to the task, so that the worker can recognize
    a connection that arrives after a newer connection. A `metered` client is sent `Ready`.
    `compression` is "AUTO", the name of a codec or ``None``: a request, which the worker follows
    per frame where possible. `key` is the key of this client for this task, from the dispatcher.
    `trainer`: its id for the cross-trainer cache; `consumer_index`: its index in a coordinated
    read. Only a client with `reports` knows `Report`.
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
    key: bytes = b""
    consumer_index: Count | None = None
    reports: bool = False


# Most elements that one `WorkerProbe` asks for, and most bytes of each.
MAX_PROBE_ELEMENTS = 64
MAX_PROBE_BYTES = 1 << 20


class WorkerProbe(msgspec.Struct, frozen=True, tag=True):
    """Client to worker in place of `Hello`, any number of times: send a `WorkerProbeReply`.

    The worker answers with `elements` frames, each with an array of `element_bytes` bytes. A probe
    needs no task: `stoker doctor` measures the connection with probes.
    """

    elements: Annotated[int, msgspec.Meta(ge=0, le=MAX_PROBE_ELEMENTS)] = 0
    element_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_PROBE_BYTES)] = 0


class WorkerProbeReply(msgspec.Struct, frozen=True, tag=True):
    """Worker to client, in answer to `WorkerProbe`: its identity, its versions and its clock.

    `worker_id` is the id that the dispatcher at address `dispatcher` assigned, 0 before that.
    `clock` is in seconds since 1970. `host` identifies the kernel that the worker runs on; "" if
    unknown.
    """

    protocol_min: int
    protocol_max: int
    worker: str
    worker_id: int
    dispatcher: str
    stoker: str
    clock: float
    host: str = ""


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Worker to client, in answer to `Hello`: the protocol version of the connection.

    Regardless of credit, the worker keeps at most about `buffer_bytes` sent and not consumed. Both
    sides notice within `peer_timeout_ms` that the peer cannot be reached. Frames before
    `first_frame` are not sent.
    """

    protocol: int
    worker: str
    buffer_bytes: Count = 0
    peer_timeout_ms: Count = 10_000
    first_frame: Count = 0


# Credit is a window that the client moves: totals from the start of a connection stay unambiguous
# when a credit crosses a frame. (docs/decisions/018)
class Credit(msgspec.Struct, frozen=True, tag=True):
    """Client to worker: frames before `consumed` may be dropped, and more may be sent.

    If `consumed` is more than the next frame, a coordinated reader skips to this position. The
    worker sends at most `elements` positions in total on this connection, and only while less than
    about `bytes` bytes are sent and not consumed (a single frame may have more).
    """

    consumed: Count
    elements: Count
    bytes: Count


Positions: TypeAlias = tuple[Count, Count, Annotated[int, msgspec.Meta(ge=1)]]
"""Positions of an epoch: the first, how many, and the distance of each to the next."""


# Of a deterministic epoch. The newest message says everything about room, and the ranges are asked
# again on a new connection: a lost message needs no rule.
class Want(msgspec.Struct, frozen=True, tag=True):
    """Client to worker in place of `Credit`, in a deterministic epoch: send these positions.

    The worker computes `ranges` in their order, after those that the client has asked for on this
    connection before, and forgets the positions in `cancelled`. The client has consumed, or does
    not want, every position before `needed`: the worker drops them, whether sent or not. The worker
    sends a position only if it is before `limit`, and only while less than about `bytes` bytes are
    sent and not consumed. The position `needed` is computed before all others and is sent
    regardless of both limits.
    """

    needed: Count
    limit: Count
    bytes: Count
    ranges: list[Positions] = []
    cancelled: list[Positions] = []


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Worker to a metered client: `elements` elements wait for credit.

    With none, the worker returns its unused credit, `returned`, for other workers.
    """

    elements: Count
    returned: Count = 0


class Frame(msgspec.Struct, frozen=True, eq=False):
    """Worker to client: consecutive elements of one task, or the error at one position.

    `nbytes` counts against the bytes of `Credit`. A `shared` frame's elements are sent to several
    clients, so a receiver must not get their memory; the flag is not encoded. `positions`: in a
    deterministic epoch, the positions of the elements or of the error, in their order.
    """

    number: int
    elements: list[Any]
    error: ErrorRecord | None = None
    nbytes: int = 0
    shared: bool = False
    positions: list[Positions] = []


# Statistics are totals, so that a broken connection counts nothing twice. (docs/decisions/069)
class Counts(msgspec.Struct, frozen=True, tag=True):
    """Worker to client: counters of the task since its start, such as ``errors_ignored``.

    Sent when they change, before the next frame or `TaskEnd`, and again on each connection.
    """

    counts: dict[str, Count]


class Report(msgspec.Struct, frozen=True, tag=True):
    """Worker to client, at most twice a second and before `TaskEnd`: where the task's time goes.

    `evidence` is opaque here. `backlogged` of `chunks` chunks were computed while earlier elements
    still waited in the worker for this client.
    """

    evidence: bytes
    chunks: Count = 0
    backlogged: Count = 0


class TaskEnd(msgspec.Struct, frozen=True, tag=True):
    """Worker to client: the task has ended after `frames` frames for this client."""

    frames: Count


class GiveBack(msgspec.Struct, frozen=True, tag=True):
    """Client to worker, before the client closes: the position up to which elements are consumed.

    The client has consumed the frames before `frame` and the first `consumed` elements of `frame`;
    the rest returns to the task.
    """

    frame: Count
    consumed: Count


class Bye(msgspec.Struct, frozen=True, tag=True):
    """Either direction: the sender stops, with the reason."""

    error: ErrorRecord | None = None


class FrameHeader(msgspec.Struct, frozen=True, tag="Frame", omit_defaults=True):
    """Header of a `Frame`: `column` describes the elements, whose values are in the body.

    With a `codec` the body is compressed; `size` is its uncompressed size in bytes.
    """

    number: Count
    count: Count
    column: Column | None = None
    error: ErrorRecord | None = None
    nbytes: Count = 0
    codec: str | None = None
    size: Count = 0
    positions: list[Positions] = []


# Messages without a body, which are their own headers.
BodilessMessage: TypeAlias = (
    Hello
    | WorkerProbe
    | WorkerProbeReply
    | Welcome
    | Credit
    | Want
    | Ready
    | Counts
    | Report
    | TaskEnd
    | GiveBack
    | Bye
)
Message: TypeAlias = BodilessMessage | Frame

PREFIX = struct.Struct("<4sIQ")
_MAGIC = b"stk1"
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[BodilessMessage | FrameHeader] = msgspec.msgpack.Decoder(
    BodilessMessage | FrameHeader
)
_DEFAULT_TYPES = TypeResolver()

# Compresses the buffers of a body of a given size; returns ``None`` for an uncompressed body.
Pack: TypeAlias = Callable[[list[Buffer], int], tuple[str, Buffer] | None]


def negotiate(theirs_min: int, theirs_max: int) -> int:
    """Return the newest protocol version that both sides support.

    Raises:
        FailedPreconditionError: if there is none.
    """
    version = min(PROTOCOL_MAX, theirs_max)
    if version < max(PROTOCOL_MIN, theirs_min):
        raise FailedPreconditionError(
            f"no common protocol version: this side speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}, the "
            f"other {theirs_min} to {theirs_max}; install the same stoker version on both"
        )
    return version


def encode(message: Message, pack: Pack | None = None) -> list[Buffer]:
    """Return the bytes of `message`: prefix and header first, then the buffers of the body.

    Large arrays are not copied: the result refers to their memory until the frame is sent. `pack`
    may compress the body.

    Raises:
        InvalidArgumentError: if an element contains a value that cannot be encoded; the error names
            its type and place.
        FailedPreconditionError: if the header would exceed `MAX_HEADER_BYTES`.
    """
    if not isinstance(message, Frame):
        header = _ENCODER.encode(message)
        return [PREFIX.pack(_MAGIC, len(header), 0) + header]
    column, body, size = encode_elements(message.elements) if message.elements else (None, [], 0)
    description = FrameHeader(
        message.number,
        len(message.elements),
        column,
        message.error,
        message.nbytes,
        positions=message.positions,
    )
    if pack is not None and (packed := pack(body, size)) is not None:
        codec, data = packed
        # The size is sent: the receiver allocates memory before it decompresses untrusted bytes.
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


def parse_prefix(data: Buffer, max_body_bytes: int, start: int = 0) -> tuple[int, int]:
    """Return the lengths of the header and the body that follow the prefix at `start`.

    Raises:
        WireError: if the bytes are not a prefix, or announce more bytes than allowed.
    """
    magic, header, body = PREFIX.unpack_from(data, start)
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
    """Return the message of a header (without prefix) and its body.

    Large arrays are views into the body if the body is writable.

    Args:
        header: as received.
        body: as received, in one buffer or in parts.
        types: rebuilds namedtuples and dataclasses.
        max_body_bytes: a compressed body that claims to be larger is refused.
        allocate: allocates memory to decompress into.

    Raises:
        WireError: if the bytes are not a message.
    """
    try:
        parsed = _DECODER.decode(header)
    except UNDECODABLE as error:
        raise WireError(f"not a header of stoker's protocol: {error}") from error
    size = 0 if body is None else body_size(body)
    if not isinstance(parsed, FrameHeader):
        if size:
            raise WireError(f"a {type(parsed).__name__} message with a body of {size} bytes")
        return parsed
    if parsed.codec is not None and body is not None:
        body = _decompressed(parsed, body, max_body_bytes, allocate)
    elements: list[Any] = []
    if parsed.column is not None and body is not None:
        elements = decode_elements(parsed.column, parsed.count, body, types)
    elif parsed.count or size or parsed.column is not None:
        raise WireError(
            f"frame {parsed.number} claims {parsed.count} elements, its body has {size} bytes"
        )
    _check_positions(parsed)
    return Frame(parsed.number, elements, parsed.error, parsed.nbytes, positions=parsed.positions)


def _check_positions(frame: FrameHeader) -> None:
    named = sum(count for _, count, _ in frame.positions)
    if frame.positions and named != (1 if frame.error is not None else frame.count):
        raise WireError(
            f"frame {frame.number} names {named} positions, and has {frame.count} elements"
        )


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
