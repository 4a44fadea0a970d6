"""Iterators of received chunks refer to no large element that they have yielded."""

import weakref
from operator import length_hint

import numpy as np
import pytest

from stoker.elements.sizes import chunk_bytes
from stoker.service.client.ready_elements import ready_elements

LARGE = 100_000


def _ready(elements):
    return ready_elements(elements, chunk_bytes(elements))


def test_elements_come_in_order_with_a_length_hint():
    ready = _ready([np.zeros(LARGE), np.ones(LARGE)])
    assert length_hint(ready) == 2
    assert [int(array[0]) for array in ready] == [0, 1]
    assert length_hint(ready) == 0
    assert next(ready, None) is None


def test_yielded_array_has_no_other_reference():
    chunk = [np.zeros(LARGE), np.zeros(LARGE)]
    released = weakref.ref(chunk[0])
    ready = _ready(chunk)
    next(ready)
    assert released() is None
    assert len(chunk) == 2  # flow control counts it


def test_a_few_large_elements_are_released_after_small_ones():
    chunk = [np.zeros(1), np.zeros(LARGE)]
    released = weakref.ref(chunk[1])
    assert len(list(_ready(chunk))) == 2
    assert released() is None


@pytest.mark.parametrize(
    "chunk",
    [[1, "a", None], [bytes(LARGE)] * 3, [None, bytes(LARGE)], [np.zeros(1000)] * 100],
)
def test_list_of_plain_or_small_elements_is_not_changed(chunk):
    before = list(chunk)
    assert len(list(_ready(chunk))) == len(before)
    assert all(one is other for one, other in zip(chunk, before, strict=True))
