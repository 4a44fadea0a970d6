"""Elements that several readers get."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from stoker import RaggedArray
from stoker.elements.frozen import fresh, frozen


class Pair(NamedTuple):
    a: Any
    b: Any


def test_frozen_makes_nested_arrays_read_only_views() -> None:
    array = np.arange(3)
    element = {"a": (array, [array, 1]), "b": Pair(RaggedArray(array, np.array([0, 3])), None)}
    found = frozen(element)
    for leaf in (found["a"][0], found["a"][1][0], found["b"].a.values):
        assert np.shares_memory(leaf, array)
        with pytest.raises(ValueError, match="read-only"):
            leaf[0] = 1
    assert type(found["b"]) is Pair
    assert array.flags.writeable


@pytest.mark.parametrize("value", [1, "a", None, 2.5, [1, 2], (), np.int64(3), object()])
def test_frozen_leaves_other_values_unchanged(value: Any) -> None:
    assert frozen(value) == value
    assert fresh([value]) == [value]


def test_fresh_makes_new_containers() -> None:
    element = {"a": [1, 2], "b": ({"c": np.zeros(1)},)}
    (copy,) = fresh([element])
    copy["a"].append(3)
    copy["b"][0]["d"] = 1
    assert element["a"] == [1, 2]
    assert list(element["b"][0]) == ["c"]  # type: ignore[call-overload]
    assert copy["b"][0]["c"] is element["b"][0]["c"]  # type: ignore[index]
