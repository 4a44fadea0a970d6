"""Short texts of values for messages."""

from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest

from stoker.elements.brief import brief


class Explosive(int):
    def __repr__(self) -> str:
        raise RuntimeError("never call this")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (np.int64(7), "7"),
        (True, "True"),
        (None, "None"),
        (0.5, "0.5"),
        (10**400, "a large int"),
        ("a.jpg", "'a.jpg'"),
        (b"\x00", "b'\\x00'"),
        ("x" * 100, f"'{'x' * 80}'..."),
        (PurePosixPath("data/a.jpg"), "'data/a.jpg'"),
        (np.zeros((3, 2), np.uint8), "uint8 array of shape (3, 2)"),
        ((1, "a"), "(1, 'a')"),
        ((1,), "(1,)"),
        ([1], "[1]"),
        (list(range(9)), "[0, 1, 2, 3, ...]"),
        ({"path": "a", "size": np.zeros(2)}, "{'path': 'a', 'size': float64 array of shape (2,)}"),
        (((1, (2, (3,))),), "((1, <tuple>),)"),
        ({}, "{}"),
    ],
)
def test_values_have_short_texts(value: Any, text: str) -> None:
    assert brief(value) == text


def test_no_code_of_other_classes_is_called() -> None:
    assert brief([Explosive(3)]) == "[<Explosive>]"
