import itertools

import numpy as np
import pytest

from stoker.errors import WireError
from stoker.wire.compression import CODECS, MIN_BYTES
from stoker.wire.frame_compressor import FrameCompressor, compressor_for
from stoker.wire.frames import Frame, Hello
from stoker.wire.transports import get_transport
from stoker.wire.transports.memory import MemoryTransport
from tests.wire.pairs import connected

TEXT = b"the same words " * 10_000


@pytest.mark.parametrize("wish", [None, "", "lz4", "BROTLI"])
def test_what_cannot_be_wished_for_is_nothing(wish):
    assert compressor_for(wish) is None


@pytest.mark.parametrize("name", CODECS)
def test_a_named_codec_is_used_for_every_body_that_may_be_worth_it(name):
    compressor = compressor_for(name)
    assert compressor is not None
    for _ in range(3):
        compressed = compressor.compress([TEXT], len(TEXT))
        assert compressed is not None
        assert compressed[0] == name
        compressor.sent()
    assert compressor.compress([TEXT[: MIN_BYTES - 1]], MIN_BYTES - 1) is None


def test_auto_learns_from_how_long_packing_and_sending_take():
    """Sending takes 10 ms for what LZ4 packs in none: a link that is worth compressing for."""
    now = [0.0]
    compressor = FrameCompressor("AUTO", clock=lambda: now[0])
    codecs = []
    for _ in range(200):
        compressed = compressor.compress([TEXT], len(TEXT))
        codecs.append(None if compressed is None else compressed[0])
        now[0] += (
            0.01
            * (len(TEXT) if compressed is None else memoryview(compressed[1]).nbytes)
            / len(TEXT)
        )
        compressor.sent()
    assert codecs[0] is None
    used = [codec for codec, _ in itertools.groupby(codecs)]
    assert used[-1] in CODECS
    assert set(used[1:-1]) <= {*CODECS, None}
    assert codecs.count(None) < 40


def test_auto_does_not_compress_small_bodies():
    now = [0.0]
    compressor = FrameCompressor("AUTO", clock=lambda: now[0])
    for _ in range(2000):
        assert compressor.compress([TEXT[: MIN_BYTES - 1]], MIN_BYTES - 1) is None
        now[0] += MIN_BYTES / 1e6
        compressor.sent()


def test_messages_between_frames_are_not_taken_for_them():
    compressor = FrameCompressor("LZ4")
    compressor.sent()
    assert compressor.compress([TEXT], len(TEXT)) is not None


@pytest.mark.parametrize("wish", [*CODECS, "AUTO", None])
@pytest.mark.parametrize("transport", ["tcp", "grpc", "memory"])
def test_frames_arrive_whatever_the_wish(transport, wish):
    elements = [{"x": np.arange(50_000) + i, "text": TEXT} for i in range(2)]
    with connected(
        MemoryTransport() if transport == "memory" else get_transport(transport)
    ) as pair:
        pair.far.compressor = compressor_for(wish)
        for number in range(3):
            pair.far.send(Frame(number, elements))
            pair.far.send(Hello(1, 1, 1, 1, 0))
            frame = pair.near.receive(5)
            assert isinstance(frame, Frame)
            assert frame.number == number
            for got, sent in zip(frame.elements, elements, strict=True):
                assert (got["x"] == sent["x"]).all()
                assert got["text"] == TEXT
            assert isinstance(pair.near.receive(5), Hello)


@pytest.mark.parametrize("transport", ["tcp", "grpc"])
def test_a_listener_refuses_a_body_that_is_small_only_while_compressed(transport):
    with connected(get_transport(transport)) as pair:
        pair.near.compressor = compressor_for("ZSTD")
        pair.near.send(Frame(0, [20 * TEXT]))
        with pytest.raises(WireError, match="claims a body of 3000064 bytes, compressed to"):
            pair.far.receive(5)
        assert pair.far.closed
