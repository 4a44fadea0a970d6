"""Compression of the frames that a connection sends."""

import time
from collections.abc import Callable

from stoker.elements.codec.layout import Buffer
from stoker.wire import compression
from stoker.wire.auto_compression import AutoCompression


class FrameCompressor:
    """Compresses the bodies of one connection's frames; used by one thread at a time.

    Encode with `compress`, send the result, then call `sent`: "AUTO" uses the time of sending.

    Args:
        name: "AUTO" or the name of a codec.
        clock: returns seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self._auto = AutoCompression() if name == compression.AUTO else None
        self._codec = None if self._auto else name
        self._clock = clock
        self._size = self._wire = 0  # of the frame that is being sent; 0 between frames
        self._compressing = self._began = 0.0

    def compress(self, body: list[Buffer], size: int) -> tuple[str, Buffer] | None:
        """Return the codec's name and the compressed body, as `frames.encode` expects both."""
        if not compression.MIN_BYTES <= size <= compression.MAX_BYTES:
            return None
        codec = self._auto.choose() if self._auto else self._codec
        if codec is not None:
            compression.get_codec(codec)  # loading the codec must not count as compressing
        began = self._clock()
        compressed = None if codec is None else compression.compress(codec, body, size)
        self._began = self._clock()
        self._compressing = self._began - began
        self._size, self._wire = size, size if compressed is None else compressed.nbytes
        return None if codec is None or compressed is None else (codec, compressed)

    def sent(self) -> None:
        """Record that the kernel has accepted the last compressed frame, if not yet recorded."""
        if self._auto and self._size:
            self._auto.sent(self._size, self._wire, self._compressing, self._began, self._clock())
        self._size = 0


def compressor_for(name: str | None) -> FrameCompressor | None:
    """Return the compressor that a client requests; ``None`` where frames are sent uncompressed.

    That includes codecs this version does not have: compression is a request, not a condition.
    """
    known = name == compression.AUTO or name in compression.CODECS
    return FrameCompressor(name) if name is not None and known else None
