"""Numbers with their nouns."""

import pytest

from stoker.service.plurals import plural


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("task",), "0 tasks"),
        (1, ("task",), "1 task"),
        (1234, ("task",), "1,234 tasks"),
        (1, ("task ends", "tasks end"), "1 task ends"),
        (2, ("task ends", "tasks end"), "2 tasks end"),
    ],
)
def test_noun_follows_the_number(number: int, words: tuple[str, ...], text: str):
    assert plural(number, *words) == text
