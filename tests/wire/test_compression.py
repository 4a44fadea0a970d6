import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.elements.codec import columns as c
from stoker.elements.codec.layout import Buffer, empty_body
from stoker.errors import WireError
from stoker.wire import compression
from stoker.wire.compression import CODECS, compress, decompress, get_codec
from stoker.wire.frame_compressor import FrameCompressor
from stoker.wire.frames import PREFIX, Frame, FrameHeader, decode, encode
from tests.wire.elements import frames_of_elements

PIECE = b"the same words " * 1000


def packed(name: str, data: bytes) -> bytes:
    out = bytearray(get_codec(name).bound(len(data)))
    return bytes(out[: get_codec(name).compress(data, out)])


def compressed(frame: Frame, name: str) -> tuple[memoryview, bytearray]:
    """Header and body of the frame, compressed if at all possible."""
    first, *body = encode(frame, FrameCompressor(name).compress)
    return memoryview(first)[PREFIX.size :], bytearray().join(body)


@pytest.mark.parametrize("name", CODECS)
@given(data=st.binary(min_size=1, max_size=2000), times=st.sampled_from([1, 50]))
def test_what_is_compressed_comes_back(name, data, times):
    assert decompress(name, packed(name, data * times), len(data) * times) == data * times


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("size", [4 << 10, 300_001, 20 << 20])
def test_noise_never_outgrows_the_bound(name, size):
    noise = np.random.default_rng(0).bytes(size)
    assert len(packed(name, noise)) <= get_codec(name).bound(size)
    assert compress(name, [noise], size) is None


@pytest.mark.parametrize("name", CODECS)
def test_a_body_of_several_buffers_is_compressed_as_one(name):
    parts: list[Buffer] = [PIECE, memoryview(PIECE)[7:], bytearray(PIECE)]
    whole = b"".join(parts)
    data = compress(name, parts, len(whole))
    assert data is not None
    assert len(data) < len(whole) / 10
    assert decompress(name, data, len(whole)) == whole
    assert decompress(name, [data[:50], data[50:]], len(whole)) == whole


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("claim", [1, len(PIECE) - 1, len(PIECE) + 1, 50 * len(PIECE)])
def test_a_wrong_claim_is_refused_and_nothing_is_written_beyond_it(name, claim):
    memory = np.full(claim + 4096, 7, np.uint8)
    with pytest.raises(WireError, match=f"{claim}"):
        decompress(name, packed(name, PIECE), claim, lambda size: memory[:size].data)
    assert (memory[claim:] == 7).all()


@pytest.mark.parametrize("name", CODECS)
@given(garbage=st.binary(max_size=300), claim=st.integers(1, 5000))
def test_garbage_is_refused_or_has_the_size_it_claims(name, garbage, claim):
    with contextlib.suppress(WireError):
        assert len(decompress(name, garbage, claim)) == claim


def test_a_codec_of_another_version_is_named():
    with pytest.raises(WireError, match=r"'BROTLI'.*LZ4, SNAPPY, ZSTD"):
        decompress("BROTLI", b"x", 1)


# ── frames ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", CODECS)
def test_a_frame_arrives_as_it_left_and_its_arrays_are_writable(name):
    elements = [{"image": np.arange(90_000).reshape(300, 300) % 7, "label": i} for i in range(3)]
    header, body = compressed(Frame(4, elements), name)
    assert len(body) < 3 * 90_000 * 8 / 2
    frame = decode(header, body)
    assert isinstance(frame, Frame)
    assert frame.number == 4
    for got, sent in zip(frame.elements, elements, strict=True):
        assert got["label"] == sent["label"]
        assert (got["image"] == sent["image"]).all()
        got["image"][0] = 0


@pytest.mark.parametrize("name", CODECS)
def test_a_frame_that_does_not_shrink_travels_as_it_is(name):
    noise = np.random.default_rng(0).bytes(100_000)
    frame = Frame(0, [noise])
    assert [bytes(x) for x in encode(frame, FrameCompressor(name).compress)] == [
        bytes(x) for x in encode(frame)
    ]


def test_it_is_decompressed_into_memory_that_is_given_and_taken_once():
    taken = []

    def allocate(size):
        taken.append(size)
        return empty_body(size)

    header, body = compressed(Frame(0, [PIECE]), "LZ4")
    decode(header, body, allocate=allocate)
    assert taken == [msgspec.msgpack.decode(header)["size"]]


@pytest.mark.parametrize(
    ("size", "limit"),
    [(0, 1 << 20), (2 << 20, 1 << 20), (2**60, 64 << 30), (compression.MAX_BYTES + 1, 64 << 30)],
)
def test_no_memory_is_taken_for_a_claim_beyond_what_may_be_received(size, limit):
    def allocate(size):
        raise AssertionError(f"{size} bytes taken")

    header = msgspec.msgpack.encode(FrameHeader(0, 1, c.Strs(), codec="ZSTD", size=size))
    with pytest.raises(WireError, match=f"claims a body of {size} bytes"):
        decode(header, packed("ZSTD", PIECE), max_body_bytes=limit, allocate=allocate)


def test_a_codec_without_a_body_is_refused_if_elements_are_claimed():
    header = msgspec.msgpack.encode(FrameHeader(0, 1, c.Strs(), codec="LZ4", size=5))
    with pytest.raises(WireError):
        decode(header)
    with pytest.raises(WireError):
        decode(header, b"")


@given(elements=frames_of_elements(), name=st.sampled_from(CODECS), data=st.data())
def test_a_compressed_frame_with_bytes_changed_or_cut_decodes_or_is_refused(elements, name, data):
    header, body = compressed(Frame(0, [*elements, PIECE]), name)
    at = data.draw(st.integers(0, len(body) - 1))
    changed = bytearray(body)
    changed[at] ^= data.draw(st.integers(1, 255))
    for bad in (changed, body[:at], body + b"\0"):
        with contextlib.suppress(WireError):
            decode(header, bad)
