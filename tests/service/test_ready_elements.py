"""Iterators of received chunks refer to no large element that they have yielded."""

import sys
from operator import length_hint

import numpy as np
import pytest

from stoker.service.client.ready_elements import ready_elements

LARGE = 100_000


def test_elements_come_in_order_with_a_length_hint():
    ready = ready_elements([np.zeros(LARGE), np.ones(LARGE)])
    assert length_hint(ready) == 2
    assert [int(array[0]) for array in ready] == [0, 1]
    assert length_hint(ready) == 0


def test_yielded_array_has_no_other_reference():
    chunk = [np.zeros(LARGE), np.zeros(LARGE)]
    array = next(ready_elements(chunk))
    assert sys.getrefcount(array) == 2
    assert len(chunk) == 2  # flow control counts it


@pytest.mark.parametrize("chunk", [[1, "a", None], [bytes(LARGE)] * 3, [np.zeros(1000)] * 100])
def test_list_of_plain_or_small_elements_is_not_changed(chunk):
    before = list(chunk)
    assert len(list(ready_elements(chunk))) == len(before)
    assert all(one is other for one, other in zip(chunk, before, strict=True))
