"""Registering large data warns with the names of the variables."""

import functools
import re
import warnings

import numpy as np
import pytest

import stoker
from stoker.errors import InvalidArgumentError
from stoker.service.api import registration
from stoker.service.api.registration import large_captures

ADDRESS = "localhost:5050"
TABLE = np.zeros(12_000_000, np.uint8)


def _uses_a_global(x):
    return TABLE[x]


def _message(dataset: stoker.Dataset) -> str:
    with pytest.warns(UserWarning, match="MB of data in it") as caught:
        dataset.distribute(ADDRESS)
    [warning] = caught
    assert warning.filename == __file__
    return str(warning.message)


def test_a_large_closure_is_named_at_the_users_line():
    images, small = np.zeros(20_000_000, np.uint8), np.zeros(10)
    message = _message(stoker.Dataset.range(3).map(lambda i: images[i] + small[0]))
    assert re.search(
        r"`images`, used by `.*<lambda>` of `map` \(.*test_captures.py:\d+\), 20 MB", message
    )
    assert "small" not in message


def test_globals_arguments_and_attributes_are_named():
    class Model:
        def __init__(self):
            self.weights = np.zeros(11_000_000, np.uint8)

        def __call__(self, x):
            return x

        def run(self, x):
            return self.weights[x]

    def helper(x):
        return _uses_a_global(x)

    assert "`TABLE`, used by `_uses_a_global`" in _message(stoker.Dataset.range(3).map(helper))
    partial = functools.partial(lambda table, x: x, bytes(11_000_000))
    assert "`argument 0`" in _message(stoker.Dataset.range(3).map(partial))
    assert "`self`, used by `" in _message(stoker.Dataset.range(3).map(Model().run))
    assert "of `map` (" in _message(stoker.Dataset.range(3).map(Model()))


def test_large_elements_of_a_source_are_named():
    source = stoker.Dataset.from_tensor_slices(np.zeros((5, 3_000_000), np.uint8))
    assert "from_tensor_slices" in _message(source)
    assert "15 MB" in _message(source)


def test_the_largest_are_named_first():
    values = {name: bytes(1_000_000 * size) for size, name in enumerate("abcdefgh", start=1)}
    a, b, c, d, e, f, g, h = values.values()
    dataset = stoker.Dataset.range(3).map(lambda i: (a, b, c, d, e, f, g, h)[i])
    assert re.findall("`(.)`", large_captures(dataset.node)) == list("hgfed")
    assert large_captures(dataset.node).endswith("; 3 more")


def test_small_captures_do_not_warn():
    data = bytes(5_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stoker.Dataset.range(3).map(lambda i: data[i]).distribute(ADDRESS)


def test_data_that_no_dispatcher_accepts_is_refused(monkeypatch):
    monkeypatch.setattr(registration, "MAX_TREE_BYTES", 3_000_000)
    data = bytes(5_000_000)
    with pytest.raises(InvalidArgumentError, match=r"more than the 3 MB .*`data`, used by"):
        stoker.Dataset.range(3).map(lambda i: data[i]).distribute(ADDRESS)
