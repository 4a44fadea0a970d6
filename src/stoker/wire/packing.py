"""What a connection does to the bodies of the frames it sends: the client's wish, carried out."""

import threading
import time
from collections.abc import Callable

from stoker.elements.codec.layout import Buffer
from stoker.wire import compression
from stoker.wire.adaptive import MIN_BYTES, Adaptive
from stoker.wire.frames import Frame, Message, encode


class _Always:
    """Every body that may be worth it, with one codec."""

    def __init__(self, codec: str) -> None:
        self._codec = codec

    def choose(self, size: int) -> str | None:
        return self._codec if size >= MIN_BYTES else None

    def packed(self, codec: str, size: int, packed: int, seconds: float) -> None:
        """Nothing is learnt."""

    def sent(self, size: int, wire: int, began: float, ended: float) -> None:
        """Nothing is learnt."""


class Packer:
    """Compresses the bodies of one connection. One thread at a time, which holds `lock`.

    Encode with `pack`, send what that gives, then call `sent`: "AUTO" decides by how long it took.

    Args:
        wish: "AUTO" or the name of a codec.
        clock: seconds.
    """

    def __init__(self, wish: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self._policy = Adaptive() if wish == compression.AUTO else _Always(wish)
        self._clock = clock
        self._size = self._wire = 0
        self._ready = 0.0
        self.lock = threading.Lock()

    def pack(self, body: list[Buffer], size: int) -> tuple[str, Buffer] | None:
        """As `frames.encode` wants it."""
        self._size = self._wire = size
        codec = self._policy.choose(size) if size <= compression.MAX_BYTES else None
        packed = None
        self._ready = self._clock()
        if codec is not None:
            packed = compression.compress(codec, body, size)
            self._wire = size if packed is None else packed.nbytes
            began, self._ready = self._ready, self._clock()
            self._policy.packed(codec, size, self._wire, self._ready - began)
        return None if codec is None or packed is None else (codec, packed)

    def sent(self) -> None:
        """What was packed last, if anything was since this was called, is with the kernel."""
        if self._size >= MIN_BYTES:
            self._policy.sent(self._size, self._wire, self._ready, self._clock())
        self._size = 0


def send_packed(
    message: Message, packer: Packer | None, send: Callable[[list[Buffer]], None]
) -> None:
    """Encodes a message, has `packer` compress it if it is a frame, and calls `send`."""
    if packer is None or not isinstance(message, Frame):
        send(encode(message))
        return
    with packer.lock:
        send(encode(message, packer.pack))
        packer.sent()


def packer_for(wish: str | None) -> Packer | None:
    """What carries out a client's wish; ``None`` where nothing is to be compressed.

    A codec that this version does not have is a wish it cannot fulfil: frames travel as they are.
    """
    return Packer(wish) if wish == compression.AUTO or wish in compression.CODECS else None
