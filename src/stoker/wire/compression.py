"""Codecs for the bodies of frames: from one buffer into another, and without the GIL.

All come from cramjam, which was measured against lz4, zstandard, python-snappy and blosc2
(docs/architecture.md): it alone has all three, and decompresses into memory that is given.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.elements.codec.layout import Body, Buffer, body_size, empty_body, parts_of
from stoker.errors import WireError
from stoker.wire.buffers import BufferPool

AUTO = "AUTO"
"""What users write for: whatever gets most elements through."""

CODECS = ("LZ4", "SNAPPY", "ZSTD")
"""The names users may write; "SNAPPY" is tf.data service's."""

MAX_BYTES = 1 << 30
"""Larger bodies are not compressed: LZ4 and Snappy end at 2 and 4 GiB."""

WORTHWHILE = 0.95
"""A body that does not shrink to this part of itself travels as it is."""

_ZSTD_LEVEL = 1  # level 3 is a sixth slower, and hardly leaves less

# What is compressed for one connection is sent before the next: few buffers serve all of them.
_POOL = BufferPool(64 << 20)

Allocate = Callable[[int], memoryview]


@dataclass(frozen=True)
class Codec:
    """One way to compress.

    Attributes:
        bound: the size that so many bytes cannot exceed when compressed.
        compress: from the first buffer into the second; returns how many bytes it has written.
        decompress: the same, the other way; never writes beyond the second buffer.
    """

    bound: Callable[[int], int]
    compress: Callable[[Any, Any], int]
    decompress: Callable[[Any, Any], int]


@functools.cache
def get_codec(name: str) -> Codec:
    """The codec called `name`.

    Raises:
        WireError: there is none in this version.
    """
    import cramjam

    if name == "LZ4":
        return Codec(
            lambda size: size + size // 255 + 64,
            lambda data, out: cramjam.lz4.compress_block_into(data, out, store_size=False),
            lambda data, out: cramjam.lz4.decompress_block_into(data, out, output_len=len(out)),
        )
    if name == "SNAPPY":
        return Codec(
            lambda size: size + size // 6 + 64,
            cramjam.snappy.compress_raw_into,
            cramjam.snappy.decompress_raw_into,
        )
    if name == "ZSTD":
        return Codec(
            lambda size: size + size // 128 + 1024,
            lambda data, out: cramjam.zstd.compress_into(data, out, level=_ZSTD_LEVEL),
            cramjam.zstd.decompress_into,
        )
    raise WireError(
        f"a frame compressed with {name!r}, which this version does not know (it knows "
        f"{', '.join(CODECS)}); install the same stoker version on both sides"
    )


def compress(name: str, body: Sequence[Buffer], size: int) -> memoryview | None:
    """The buffers of a `body` of `size` bytes, compressed; ``None`` if they hardly shrink."""
    codec = get_codec(name)
    data = body[0] if len(body) == 1 else _joined(body, size)
    out = _POOL.take(codec.bound(size))
    packed = codec.compress(data, out)
    return out[:packed] if packed < size * WORTHWHILE else None


def decompress(name: str, body: Body, size: int, allocate: Allocate = empty_body) -> memoryview:
    """The `size` bytes that `body` holds compressed, in memory that `allocate` gives.

    Args:
        name: of the codec.
        body: anything at all.
        size: what was claimed; nothing is written beyond it.
        allocate: called with `size`, and once only.

    Raises:
        WireError: `body` is not what the codec makes of so many bytes; or there is no such codec.
    """
    codec = get_codec(name)
    parts = parts_of(body)
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    out = allocate(size)
    try:
        written = codec.decompress(data, out)
    except Exception as error:  # cramjam's own have no other base
        raise WireError(
            f"a body of {body_size(body)} bytes that is not {size} bytes compressed with {name}: "
            f"{error}"
        ) from error
    if written != size:
        raise WireError(
            f"a body that decompresses with {name} to {written} bytes, not the {size} it claims"
        )
    return out


def _joined(body: Sequence[Buffer], size: int) -> memoryview:
    whole = _POOL.take(size)
    position = 0
    for buffer in body:
        end = position + memoryview(buffer).nbytes
        whole[position:end] = buffer
        position = end
    return whole
