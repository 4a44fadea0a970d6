"""Compression "AUTO" over simulated links, against the same stream sent in each fixed way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.wire.auto_compression import INTERVAL, AutoCompression
from stoker.wire.compression import CODECS
from tests.wire.links import MB, NOISE, TEXT, Always, Data, Policy, Stream, data, seconds

MOST_BODIES = 1200


def best_fixed(bodies: list[tuple[int, Data]], **link: float) -> float:
    return min(seconds(Always(codec), bodies, **link) for codec in (None, *CODECS))


def bodies_for(duration: float, size: int, what: Data, link: float, **limits: float):
    """So many bodies that the best way to send them takes about `duration` seconds."""
    packed = max(min(what.speed[codec], link / what.ratio[codec]) for codec in CODECS)
    rate = min([max(packed, min(link, 4000 * MB)), *limits.values()])
    size = max(size, int(duration * rate / MOST_BODIES))
    return [(size, what)] * max(2, round(duration * rate / size))


@pytest.mark.parametrize("kernel", [0.25 * MB, 4 * MB])
@pytest.mark.parametrize("size", [150_000, 1_000_000, 9_600_000])
@pytest.mark.parametrize("link", [12.5 * MB, 125 * MB, 300 * MB, 1000 * MB, 4000 * MB])
@pytest.mark.parametrize("what", [TEXT, NOISE], ids=["text", "noise"])
def test_it_is_within_a_tenth_of_the_best_fixed_way(what, link, size, kernel):
    bodies = bodies_for(20.0, size, what, link)
    took = seconds(AutoCompression(), bodies, link=link, kernel=kernel)
    assert best_fixed(bodies, link=link, kernel=kernel) >= 0.9 * took


@given(
    link=st.floats(0.7, 3.7).map(lambda power: 10**power * MB),
    speed=st.floats(2.3, 3.2).map(lambda power: 10**power * MB),
    ratio=st.floats(0.1, 1.0),
    size=st.floats(4.5, 6.5).map(lambda power: int(10**power)),
    kernel=st.floats(-1, 0.7).map(lambda power: 10**power * MB),
    produce=st.just(1e12) | st.floats(1, 3.5).map(lambda power: 10**power * MB),
    consume=st.just(1e12) | st.floats(1, 3.5).map(lambda power: 10**power * MB),
)
@settings(max_examples=25)
def test_whatever_the_link_the_data_and_the_user_it_loses_little(
    link, speed, ratio, size, kernel, produce, consume
):
    what = data(speed, ratio)
    bodies = bodies_for(20.0, size, what, link, produce=produce, consume=consume)
    road = {"link": link, "kernel": kernel, "produce": produce, "consume": consume}
    auto = AutoCompression()
    # What the kernel takes before anything can be known goes out as it is.
    unknown = (kernel + 2 * bodies[0][0]) / link + 10 * INTERVAL
    assert 0.85 * (seconds(auto, bodies, **road) - unknown) <= best_fixed(bodies, **road)


def test_on_a_fast_link_nothing_is_ever_compressed():
    auto, stream = AutoCompression(), Stream(link=4000 * MB)
    for _ in range(2000):
        stream.send(auto, 1_000_000, TEXT)
        assert (auto.trying, auto.codec) == (False, None)


def test_where_the_pipeline_is_the_limit_nothing_is_compressed():
    auto, stream = AutoCompression(), Stream(link=100 * MB, produce=20 * MB)
    for _ in range(500):
        stream.send(auto, 1_000_000, TEXT)
        assert (auto.trying, auto.codec) == (False, None)


def test_a_slow_link_gets_the_codec_that_leaves_least_and_a_faster_one_the_fastest():
    for link, codecs in ((10 * MB, {"ZSTD"}), (400 * MB, {"LZ4", "SNAPPY"})):
        auto, stream = AutoCompression(), Stream(link=link)
        for _ in range(300):
            stream.send(auto, 1_000_000, TEXT)
        assert not auto.trying
        assert auto.codec in codecs


def _sent_for(stream: Stream, auto: AutoCompression, duration: float, what: Data) -> float:
    """Bytes a second that leave in the next `duration` seconds."""
    began, size = stream.now, 0
    while stream.now < began + duration:
        stream.send(auto, 1_000_000, what)
        size += 1_000_000
    return size / (stream.now - began)


def test_it_follows_data_that_changes():
    auto, stream = AutoCompression(), Stream(link=20 * MB)
    for _ in range(3):
        _sent_for(stream, auto, 2, NOISE)
        assert _sent_for(stream, auto, 5, NOISE) >= 0.95 * 20 * MB
        _sent_for(stream, auto, 2, TEXT)
        assert _sent_for(stream, auto, 5, TEXT) >= 0.9 * 20 * MB / TEXT.ratio["ZSTD"]


def test_it_follows_a_link_that_becomes_fast_and_slow_again():
    auto, stream = AutoCompression(), Stream(link=20 * MB)
    _sent_for(stream, auto, 20, TEXT)
    assert not auto.trying
    stream.link = 3000 * MB
    # Once compressed, the link does not look slow: only trying without shows that it is not.
    _sent_for(stream, auto, 60, TEXT)
    assert (auto.trying, auto.codec) == (False, None)
    stream.link = 20 * MB
    _sent_for(stream, auto, 2, TEXT)
    assert not auto.trying


def test_a_pause_of_the_user_changes_nothing():
    auto, stream = AutoCompression(), Stream(link=20 * MB)
    _sent_for(stream, auto, 1, TEXT)
    codec = auto.codec
    assert codec is not None
    stream.now += 600
    _sent_for(stream, auto, 1, TEXT)
    assert auto.codec == codec


def test_a_receiver_that_is_slow_itself_is_hardly_made_slower():
    """A busy trainer blocks the sender as a slow link does, and what is compressed even longer."""
    auto, now, size = AutoCompression(), 0.0, 1_000_000
    for _ in range(6000):
        codec = auto.choose()
        compressing, sending = (0.0, 0.005) if codec is None else (0.002, 0.008)
        now += compressing + sending
        wire = size if codec is None else size // 2
        auto.sent(size, wire, compressing, now - sending, now)
    assert now <= 1.08 * 6000 * 0.005


def test_a_machine_that_holds_things_up_now_and_then_misleads_it_little():
    def run(policy: Policy) -> float:
        now, size = 0.0, 1_000_000
        for number in range(1500):
            codec = policy.choose()
            compressing, ratio = 0.0, 1.0
            if codec is not None:
                compressing, ratio = size / TEXT.speed[codec], TEXT.ratio[codec]
                compressing += 0.03 if number % 11 == 0 else 0.0
            sending = ratio * size / (20 * MB) + (0.04 if number % 13 == 0 else 0.0)
            now += compressing + sending
            policy.sent(size, int(ratio * size), compressing, now - sending, now)
        return now

    assert 0.9 * run(AutoCompression()) <= min(run(Always(codec)) for codec in (None, *CODECS))
