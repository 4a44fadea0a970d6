"""Fuzz the decoders of a peer's bytes with atheris (libFuzzer); not part of the tests.

    pip install atheris
    python fuzz/fuzz_wire.py frames -max_total_time=120

Targets: "frames" (a header and its body), "grpc" (what a client sends in a gRPC call) and
"envelopes" (the framing of messages in shared memory). Every input must end in a result or a
`StokerError`: any other exception, a crash, a hang or a gigabyte of memory is a finding. After the
target may come a folder for interesting inputs, then libFuzzer's flags.
"""

import contextlib
import random
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["stoker"]):
    import msgspec
    import numpy as np

    from stoker.elements.codec.layout import empty_body
    from stoker.errors import StokerError, WireError
    from stoker.wire import frame_compressor, frames
    from stoker.wire.transports.grpc import GrpcConnection
    from stoker.wire.transports.shm import envelope

_SPLIT = struct.Struct("<H")
_MAX_BYTES = 1 << 20


# ── frames ───────────────────────────────────────────────────────────────────────────────────────
def _frames(data: bytes) -> None:
    """Decode a frame: two bytes with the header's length, the header, the body."""
    if len(data) < _SPLIT.size:
        return
    [size] = _SPLIT.unpack_from(data)
    header, rest = data[2 : 2 + size], data[2 + size :]
    body = empty_body(len(rest))
    body[:] = rest
    try:
        message = frames.decode(header, body or None, max_body_bytes=_MAX_BYTES)
    except WireError:
        return
    if isinstance(message, frames.Frame):
        for element in message.elements:
            repr(element)  # reads every value: one outside of the body would crash
        with contextlib.suppress(StokerError):
            frames.encode(message)


_NUMBERS = [0, 1, -1, 2, 7, 8, 255, 2**16, 2**31, 2**32 - 1, 2**60, 2**63 - 1, -(2**63), 2**64 - 1]
_VALUES = [*_NUMBERS, None, True, 0.5, "", "x", b"", b"abc", [], {}, "LZ4", "O", "<f4", "M8[D]"]


def _mutate_frame(data: bytes, max_size: int, seed: int) -> bytes:
    """Change values in the header, as random bytes rarely are a valid one; or change the body."""
    rng = random.Random(seed)
    if len(data) < _SPLIT.size or rng.random() < 0.3:
        return bytes(atheris.Mutate(data, len(data) + 16)[:max_size])
    [size] = _SPLIT.unpack_from(data)
    header, body = data[2 : 2 + size], data[2 + size :]
    try:
        parsed = msgspec.msgpack.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return bytes(atheris.Mutate(data, max_size))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        parsed = _change(parsed, rng)
    header = msgspec.msgpack.encode(parsed)[:65_535]
    if body and rng.random() < 0.2:
        body = atheris.Mutate(body, len(body) + 8)
    return (_SPLIT.pack(len(header)) + header + body)[:max_size]


def _change(value: Any, rng: random.Random) -> Any:
    """Return `value` with one place in it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = rng.choice(list(value))
        if rng.random() < 0.05:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: _change(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        act = rng.random()
        if act < 0.1:
            return value[:at] + value[at + 1 :]
        if act < 0.2:
            return value[:at] + [value[at]] * rng.choice((2, 3, 1000)) + value[at + 1 :]
        return [*value[:at], _change(value[at], rng), *value[at + 1 :]]
    if isinstance(value, int) and -(2**62) < value < 2**62 and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 8, value))
    return rng.choice(_VALUES)


def _frame_seeds() -> Iterator[bytes]:
    for elements in _SAMPLES:
        for codec in (None, "LZ4", "SNAPPY", "ZSTD"):
            compressor = frame_compressor.compressor_for(codec)
            parts = frames.encode(frames.Frame(3, elements), compressor and compressor.compress)
            yield _seed(b"".join(map(bytes, parts)))
    want = frames.Want(1, 2, 3, [(4, 5, 6), (99, 1, 1)], [(7, 8, 9)])
    named = frames.Frame(3, [1, 2, 3], positions=[(4, 2, 6), (99, 1, 1)])
    for message in (frames.Hello(1, 1, 5, 6, 0), frames.Bye(), frames.Credit(1, 2, 3), want):
        yield _seed(bytes(frames.encode(message)[0]))
    yield _seed(b"".join(map(bytes, frames.encode(named))))


def _seed(data: bytes) -> bytes:
    _, size, _ = frames.PREFIX.unpack_from(data)
    return _SPLIT.pack(size) + data[frames.PREFIX.size :]


_SAMPLES: list[list[Any]] = [
    [1, 2, 3],
    [1.5, True, None, "text", b"bytes", 2**70],
    [{"image": np.arange(12, dtype=np.uint8).reshape(3, 4), "label": n} for n in range(3)],
    [(np.float32(1), [np.zeros(0), "x"])] * 2,
    [np.array(["a", None, b"c"], object), np.array(["2020-01-01"], "M8[D]")],
    [np.zeros(40_000)],
    [],
]


# ── gRPC ─────────────────────────────────────────────────────────────────────────────────────────
def _grpc(data: bytes) -> None:
    """Receive pieces, each after its size in two bytes, as a client's call yields them."""
    pieces = []
    while len(data) >= _SPLIT.size:
        [size] = _SPLIT.unpack_from(data)
        pieces.append(data[2 : 2 + size])
        data = data[2 + size :]
    connection = GrpcConnection("the peer", _MAX_BYTES, _MAX_BYTES)
    connection.start(iter(pieces), lambda: None)
    with contextlib.suppress(StokerError):
        while True:
            connection.receive(5)
    connection.close()


def _grpc_seeds() -> Iterator[bytes]:
    for message in (frames.Hello(1, 1, 5, 6, 0), frames.Frame(1, [np.arange(100), "x"])):
        data = b"".join(frames.encode(message))
        cut = frames.PREFIX.size + frames.parse_prefix(data, _MAX_BYTES)[0]
        for pieces in ((data,), (data[:cut], data[cut:]), (data, data)):
            yield b"".join(_SPLIT.pack(len(piece)) + piece for piece in pieces)


# ── envelopes ────────────────────────────────────────────────────────────────────────────────────
def _envelopes(data: bytes) -> None:
    if len(data) < envelope.PREFIX.size:
        return
    with contextlib.suppress(WireError):
        size = envelope.parse_prefix(data, 0, _MAX_BYTES)
        if size <= len(data):
            envelope.pack(envelope.parse(data, 0, size))


def _envelope_seeds() -> Iterator[bytes]:
    parts = (envelope.Part(100), envelope.Part(4096, 1, 7, 64))
    returns = (envelope.Return(7), envelope.Return(8, leaked=True))
    header = msgspec.msgpack.encode({"a": 1})
    yield envelope.pack(envelope.Envelope(envelope.EnvelopeKind.MESSAGE, header, parts, returns))
    yield envelope.pack(envelope.Envelope(envelope.EnvelopeKind.RETURNS, b"", (), returns))


_TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], Iterator[bytes]]]] = {
    "frames": (_frames, _frame_seeds),
    "grpc": (_grpc, _grpc_seeds),
    "envelopes": (_envelopes, _envelope_seeds),
}


def main() -> None:
    """Run one target until libFuzzer's limits or a finding."""
    if len(sys.argv) < 2 or sys.argv[1] not in _TARGETS:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(_TARGETS)} [folder] [libFuzzer's flags]")
    name, *flags = sys.argv[1:]
    folder = Path(f"/tmp/stoker-fuzz-{name}")
    if flags and not flags[0].startswith("-"):
        folder = Path(flags.pop(0))
    folder.mkdir(parents=True, exist_ok=True)
    target, seeds = _TARGETS[name]
    for number, seed in enumerate(seeds()):
        (folder / f"seed-{number}").write_bytes(seed)
    limits = ["-rss_limit_mb=1024", "-timeout=10", "-max_len=65536"]
    options: dict[str, Any] = {"custom_mutator": _mutate_frame} if name == "frames" else {}
    atheris.Setup([sys.argv[0], *limits, *flags, str(folder)], target, **options)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
