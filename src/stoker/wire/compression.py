"""Codecs for the bodies of frames: from one buffer into another, without the GIL.

All come from cramjam, which was measured against lz4, zstandard, python-snappy and blosc2
(docs/decisions/034-compression-of-frames.md): only cramjam has all three codecs and decompresses
into a given buffer.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.elements.codec.layout import Body, Buffer, body_size, empty_body, parts_of
from stoker.errors import WireError
from stoker.wire.buffers import BufferPool

# Selects the codec with the highest throughput of elements.
AUTO = "AUTO"

# The names users may write; "SNAPPY" is tf.data service's.
CODECS = ("LZ4", "SNAPPY", "ZSTD")

# The body of a frame is compressed as a whole, in a single call without the GIL.
# (docs/decisions/034)
# Smaller bodies are not compressed: their cost is per message, not per byte.
MIN_BYTES = 4 << 10

# Larger bodies are not compressed: LZ4 and Snappy end at 2 and 4 GiB.
MAX_BYTES = 1 << 30

# Bodies that do not shrink below this fraction of their size are sent uncompressed.
WORTHWHILE = 0.95

_ZSTD_LEVEL = 1  # level 3 is a sixth slower, and its output hardly smaller

# A compressed body is sent before the next body is compressed: few buffers serve all connections.
_POOL = BufferPool(64 << 20)

Allocate = Callable[[int], memoryview]


@dataclass(frozen=True)
class Codec:
    """Compression algorithm.

    Attributes:
        bound: returns the maximum compressed size of a given number of bytes.
        compress: compresses the first buffer into the second; returns the number of bytes written.
        decompress: decompresses the first buffer into the second, and never writes beyond its end;
            returns the number of bytes written.
    """

    bound: Callable[[int], int]
    compress: Callable[[Any, Any], int]
    decompress: Callable[[Any, Any], int]


@functools.cache
def get_codec(name: str) -> Codec:
    """Return the codec `name`.

    Raises:
        WireError: if this version has no such codec.
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
        f"received a frame compressed with {name!r}, which this version does not support (only "
        f"{', '.join(CODECS)}); install the same stoker version on both sides"
    )


def compress(name: str, body: Sequence[Buffer], size: int) -> memoryview | None:
    """Compress the buffers of a `body` of `size` bytes; ``None`` if the body hardly shrinks."""
    codec = get_codec(name)
    data = body[0] if len(body) == 1 else _joined(body, size)
    out = _POOL.take(codec.bound(size))
    packed = codec.compress(data, out)
    return out[:packed] if packed < size * WORTHWHILE else None


def decompress(name: str, body: Body, size: int, allocate: Allocate = empty_body) -> memoryview:
    """Decompress `body` into `size` bytes of memory from `allocate`.

    Args:
        name: of the codec.
        body: compressed bytes; untrusted.
        size: claimed uncompressed size; nothing is written beyond `size` bytes.
        allocate: called once, with `size`.

    Raises:
        WireError: if `body` does not decompress to `size` bytes, or there is no such codec.
    """
    codec = get_codec(name)
    parts = parts_of(body)
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    out = allocate(size)  # of the claimed size: a codec that writes beyond it fails
    try:
        written = codec.decompress(data, out)
    except Exception as error:  # base class of the errors of cramjam
        raise WireError(
            f"a body of {body_size(body)} bytes is not {size} bytes compressed with {name}: {error}"
        ) from error
    if written != size:
        raise WireError(
            f"a body decompresses with {name} to {written} bytes, not the claimed {size}"
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
