"""HTTP/2's bytes, as far as one gRPC call on a connection of its own needs them (RFC 9113).

The header compression is hpack's. The frames are cut here and not by the h2 package because that
copies what it carries several times: at its best 0.5 GB/s in one process that did nothing else
(docs/architecture.md), where these are cut without touching what is in them.
"""

import struct
from collections.abc import Iterable
from typing import TypeAlias

import hpack

from stoker.elements.codec.layout import Buffer
from stoker.errors import WireError

Headers: TypeAlias = dict[str, str]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES = 9
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_BYTES = 16_384
LARGEST_WINDOW = 2**31 - 1
LARGEST_FRAME_BYTES = 2**24 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE = range(9)
CONTINUATION = 9

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 2, 3, 4, 5

NO_ERROR, REFUSED_STREAM, CANCEL = 0, 7, 8

_FRAME_HEADER = struct.Struct(">HBBBL")
_SETTING = struct.Struct(">HL")
_U32 = struct.Struct(">L")

MESSAGE_PREFIX = struct.Struct(">BL")
"""Of a gRPC message: whether it is compressed, and its length."""


def frame_header(length: int, kind: int, flags: int, stream: int) -> bytes:
    """The nine bytes before a payload of `length` bytes."""
    return _FRAME_HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream)


def parse_frame_header(data: Buffer) -> tuple[int, int, int, int]:
    """Length of the payload, kind, flags and stream of what `frame_header` made."""
    high, low, kind, flags, stream = _FRAME_HEADER.unpack_from(data)
    return high << 8 | low, kind, flags, stream & LARGEST_WINDOW


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return frame_header(len(payload), kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    payload = b"".join(_SETTING.pack(key, value) for key, value in values.items())
    return frame(SETTINGS, 0, 0, payload)


def parse_settings(payload: bytes) -> dict[int, int]:
    """The values of a SETTINGS frame; what it says twice, by the last.

    Raises:
        WireError: they are none, or not allowed.
    """
    if len(payload) % _SETTING.size:
        raise WireError(f"HTTP/2 settings of {len(payload)} bytes")
    values = dict(_SETTING.iter_unpack(payload))
    window = values.get(INITIAL_WINDOW_SIZE, DEFAULT_WINDOW)
    size = values.get(MAX_FRAME_SIZE, DEFAULT_FRAME_BYTES)
    if window > LARGEST_WINDOW or not DEFAULT_FRAME_BYTES <= size <= LARGEST_FRAME_BYTES:
        raise WireError(f"HTTP/2 settings with a window of {window} bytes, frames of {size} bytes")
    return values


def window_update(stream: int, more: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream, _U32.pack(more))


def reset_stream(stream: int, code: int) -> bytes:
    """An RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, _U32.pack(code))


def parse_u32(payload: bytes) -> int:
    """The number a RST_STREAM or WINDOW_UPDATE frame holds, or a GOAWAY frame begins with.

    Raises:
        WireError: it holds none.
    """
    if len(payload) < _U32.size:
        raise WireError(f"an HTTP/2 frame of {len(payload)} bytes that must have {_U32.size}")
    number: int = _U32.unpack_from(payload)[0]
    return number & LARGEST_WINDOW


def header_fragment(payload: bytes, flags: int) -> bytes:
    """What a HEADERS frame has of the block of headers, without padding and priority.

    Raises:
        WireError: it is too short.
    """
    padding = start = 0
    if flags & PADDED:
        padding, start = (payload[0] if payload else 0), 1
    if flags & HAS_PRIORITY:
        start += 5
    if start + padding > len(payload):
        raise WireError(f"an HTTP/2 HEADERS frame of {len(payload)} bytes with more padding")
    return payload[start : len(payload) - padding]


class HeaderCodec:
    """Headers to bytes and back; both peers keep a table of what was said before."""

    def __init__(self) -> None:
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()

    def encode(self, stream: int, headers: Iterable[tuple[str, str]], flags: int = 0) -> bytes:
        """A HEADERS frame."""
        block = self._encoder.encode(list(headers))
        return frame(HEADERS, flags | END_HEADERS, stream, block)

    def decode(self, block: bytes) -> Headers:
        """The headers of a whole block.

        Raises:
            WireError: it is none.
        """
        try:
            return {str(name): str(value) for name, value, *_ in self._decoder.decode(block)}
        except (hpack.HPACKError, UnicodeDecodeError) as error:
            raise WireError(f"not a block of HTTP/2 headers: {error}") from error


class Cutter:
    """Takes a sequence of buffers apart without copying them.

    Attributes:
        nbytes: of all of them.
    """

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        views = [memoryview(buffer) for buffer in buffers]
        self._views = [view.cast("B") for view in views if view.nbytes]
        self.nbytes = sum(view.nbytes for view in self._views)
        self._next = self._start = 0

    def take(self, size: int) -> list[Buffer]:
        """The next `size` bytes, of which there are so many."""
        found: list[Buffer] = []
        while size:
            view = self._views[self._next]
            part = view[self._start : self._start + size]
            found.append(part)
            size -= part.nbytes
            self._start += part.nbytes
            if self._start == view.nbytes:
                self._next, self._start = self._next + 1, 0
        return found
