"""Bodies that lie in several places."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.elements.codec.layout import BodyReader, body_size
from stoker.errors import WireError
from stoker.wire.frames import PREFIX, Frame, decode, encode
from tests.wire.elements import TYPES, exact, frames_of_elements

LARGE = np.arange(20_000)


def in_parts(elements, cut):
    """A frame's header, and its body cut at arrays where `cut` says so."""
    first, *buffers = encode(Frame(0, elements))
    parts = [bytearray()]
    for number, buffer in enumerate(buffers):
        array = isinstance(buffer, memoryview)
        if array and cut(number):
            parts += [bytearray(buffer), bytearray()]
        else:
            parts[-1] += bytes(buffer)
    return bytes(first)[PREFIX.size :], parts


def elements_of(header, body):
    frame = decode(header, body, TYPES)
    assert isinstance(frame, Frame)
    return frame.elements


@given(frames_of_elements(), st.data())
def test_elements_in_parts_are_those_of_one_body(elements, data):
    header, parts = in_parts(elements, lambda _: data.draw(st.booleans()))
    whole = elements_of(header, b"".join(map(bytes, parts)))
    assert list(map(exact, elements_of(header, parts))) == list(map(exact, whole))


def test_large_arrays_are_views_of_the_parts_they_lie_in():
    elements = [{"image": LARGE + n, "label": n, "text": b"x" * 70_000} for n in range(3)]
    header, parts = in_parts(elements, lambda _: True)
    arrived = elements_of(header, parts)
    assert list(map(exact, arrived)) == list(map(exact, elements))
    large = [np.frombuffer(part, np.uint8) for part in parts if len(part) >= LARGE.nbytes]
    for element in arrived:
        assert any(np.shares_memory(element["image"], part) for part in large)


def test_a_body_without_parts_is_empty():
    reader = BodyReader([])
    assert reader.take(0) == 0
    reader.finish()
    with pytest.raises(WireError, match="a buffer of 1 bytes at 0 of a body of 0"):
        reader.take(1)
    assert body_size([]) == 0


def test_a_buffer_that_crosses_parts_is_refused():
    reader = BodyReader([bytearray(64), bytearray(64)])
    with pytest.raises(WireError, match="100 bytes at 0 of a body of 128, across its parts"):
        reader.take(100)


def test_buffers_are_taken_from_part_after_part_and_not_beyond():
    reader = BodyReader([bytearray(64), bytearray(), bytearray(b"\0" * 64 + b"x"), bytearray()])
    assert reader.take(5) == 0
    assert (reader.take(1), reader.view.nbytes) == (0, 65)
    assert (reader.take(1), bytes(reader.view[64:])) == (64, b"x")
    for size in (1, -1, 2**62):
        with pytest.raises(WireError, match=r"of a body of 129$"):
            reader.take(size)
    reader.finish()


def test_a_part_that_is_never_reached_is_too_much():
    reader = BodyReader([bytearray(64), bytearray(64)])
    reader.take(64)
    with pytest.raises(WireError, match="of 128 bytes, of which the header describes 64"):
        reader.finish()
