import itertools

import numpy as np
import pytest

from stoker.errors import WireError
from stoker.wire.adaptive import MIN_BYTES
from stoker.wire.compression import CODECS
from stoker.wire.frames import Frame, Hello
from stoker.wire.packing import Packer, packer_for
from stoker.wire.transports import get_transport
from stoker.wire.transports.memory import MemoryTransport
from tests.wire.pairs import connected

TEXT = b"the same words " * 10_000


@pytest.mark.parametrize("wish", [None, "", "lz4", "BROTLI"])
def test_what_cannot_be_wished_for_is_nothing(wish):
    assert packer_for(wish) is None


@pytest.mark.parametrize("name", CODECS)
def test_a_named_codec_is_used_for_every_body_that_may_be_worth_it(name):
    packer = packer_for(name)
    assert packer is not None
    for _ in range(3):
        packed = packer.pack([TEXT], len(TEXT))
        assert packed is not None
        assert packed[0] == name
        packer.sent()
    assert packer.pack([TEXT[: MIN_BYTES - 1]], MIN_BYTES - 1) is None


def test_auto_learns_from_how_long_packing_and_sending_take():
    """Sending takes 10 ms for what LZ4 packs in none: a link that is worth compressing for."""
    now = [0.0]
    packer = Packer("AUTO", clock=lambda: now[0])
    codecs = []
    for _ in range(200):
        packed = packer.pack([TEXT], len(TEXT))
        codecs.append(None if packed is None else packed[0])
        now[0] += 0.01 * (len(TEXT) if packed is None else memoryview(packed[1]).nbytes) / len(TEXT)
        packer.sent()
    assert codecs[0] is None
    used = [codec for codec, _ in itertools.groupby(codecs)]
    assert used[-1] in CODECS
    assert set(used[1:-1]) <= {*CODECS, None}
    assert codecs.count(None) < 40


def test_messages_between_frames_are_not_taken_for_them():
    packer = Packer("LZ4")
    packer.sent()
    assert packer.pack([TEXT], len(TEXT)) is not None


@pytest.mark.parametrize("wish", [*CODECS, "AUTO", None])
@pytest.mark.parametrize("transport", ["tcp", "grpc", "memory"])
def test_frames_arrive_whatever_the_wish(transport, wish):
    elements = [{"x": np.arange(50_000) + i, "text": TEXT} for i in range(2)]
    with connected(
        MemoryTransport() if transport == "memory" else get_transport(transport)
    ) as pair:
        pair.far.packer = packer_for(wish)
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
        pair.near.packer = packer_for("ZSTD")
        pair.near.send(Frame(0, [20 * TEXT]))
        with pytest.raises(WireError, match="claims a body of 3000064 bytes, compressed to"):
            pair.far.receive(5)
        assert pair.far.closed
