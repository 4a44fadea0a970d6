"""filter."""

from typing import Any

import pytest

from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.tree.node import Context


def broken_at(*numbers: int) -> Any:
    def predicate(x: int) -> bool:
        if x in numbers:
            raise ValueError(x)
        return x % 2 == 0

    return predicate


def test_it_yields_the_elements_the_predicate_accepts() -> None:
    assert list(Dataset.range(10).filter(lambda x: x % 3 == 0)) == [0, 3, 6, 9]
    assert list(Dataset.range(10).filter(lambda x: False)) == []


def test_tuples_are_unpacked_and_other_elements_are_not() -> None:
    pairs = Dataset.range(4).map(lambda x: (x, 3 - x))
    assert list(pairs.filter(lambda a, b: a > b)) == [(2, 1), (3, 0)]
    mixed = Dataset.range(4).map(lambda x: (x,) if x % 2 else [x])
    stream = open_stream(mixed.filter(lambda x: x != 1).node, Context())
    found: list[Any] = []
    while chunk := stream.next_chunk(10, 1 << 20):  # a slow machine cuts it into several
        found += chunk
    assert found == [[0], [2], (3,)]


def test_an_error_ends_the_chunk_before_it_and_is_raised_next() -> None:
    dataset = Dataset.range(10).filter(broken_at(3, 4))
    stream = open_stream(dataset.node, Context())
    chunks: list[Any] = []
    while True:
        try:
            chunk = stream.next_chunk(100, 1 << 20)
        except ValueError as error:
            chunks.append((error.args, failure_origin(error)))
            continue
        if not chunk:
            break
        chunks += chunk
    site = dataset.node.site
    assert chunks == [
        0,
        2,
        ((3,), ("filter", site, 3, "3")),
        ((4,), ("filter", site, 4, "4")),
        6,
        8,
    ]


@pytest.mark.parametrize("passed", range(6))
def test_an_error_is_one_position_for_advance(passed: int) -> None:
    stream = open_stream(Dataset.range(10).filter(broken_at(3, 4)).node, Context())
    assert stream.advance(passed) == passed
    rest = [0, 2, "error", "error", 6, 8][passed:]
    for expected in rest:
        if expected == "error":
            with pytest.raises(ValueError, match=r"[34]"):
                stream.next()
        else:
            assert stream.next() == expected


@pytest.mark.parametrize("verb", ["next", "chunk"])
def test_a_predicates_stop_iteration_does_not_end_the_stream(verb: str) -> None:
    def predicate(x: int) -> bool:
        if x == 1:
            raise StopIteration
        return True

    stream = open_stream(Dataset.range(3).filter(predicate).node, Context())
    read: Any = stream.next if verb == "next" else lambda: stream.next_chunk(9, 999)[0]
    assert read() == 0
    with pytest.raises(RuntimeError, match="StopIteration"):
        read()
    assert read() == 2


def test_all_verbs_call_the_predicate_once_per_element() -> None:
    seen: list[int] = []

    def every_fifth(x: int) -> bool:
        seen.append(x)
        return x % 5 == 0

    dataset = Dataset.range(1000).filter(every_fifth)
    stream = open_stream(dataset.node, Context())
    found = [stream.next(), *stream.next_chunk(7, 1 << 20), stream.next()]
    stream.advance(3)
    while chunk := stream.next_chunk(50, 1 << 20):
        found += chunk
    assert seen == list(range(1000))
    assert len(found) == 197


@pytest.mark.parametrize("at", range(12))
def test_a_stop_iteration_keeps_its_position_within_a_chunk(at: int) -> None:
    def predicate(x: int) -> bool:
        if x == at:
            raise StopIteration
        return True

    stream = open_stream(Dataset.range(12).filter(predicate).node, Context())
    found: list[Any] = []
    for _ in range(13):
        try:
            found += stream.next_chunk(12, 1 << 20)
        except RuntimeError as error:
            origin = failure_origin(error)
            found.append(("stopped", origin.index if origin else None))
    assert found == [*range(at), ("stopped", at), *range(at + 1, 12)]
