"""shuffle: a seeded order, and its replay."""

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker import Dataset
from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.range import Range
from stoker.dataset.nodes.shuffle import Shuffle
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Context, Node
from stoker.errors import FailedPreconditionError
from tests.dataset.verbs import check_verbs


class Counting(Node, frozen=True, eq=False, kw_only=True):
    """Counts from 0 to `length`, failing at multiples of `bad`; keeps what it computed."""

    length: int | None
    declared: int | None = None
    bad: int = 0
    computed: list[int] = msgspec.field(default_factory=list)

    def cardinality(self) -> int:
        if self.declared is not None:
            return self.declared
        return INFINITE_CARDINALITY if self.length is None else self.length

    def open(self, context: Context) -> Stream:
        return CountingStream(self)


class CountingStream(Stream):
    def __init__(self, node: Counting) -> None:
        self._node = node
        self._at = 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        at = self._at
        if self._node.length is not None and at >= self._node.length:
            return []
        self._at += 1
        self._node.computed.append(at)
        if self._node.bad and at % self._node.bad == 0:
            raise ValueError(at)
        return [at]

    def advance(self, n: int) -> int:
        if self._node.length is not None:
            n = min(n, self._node.length - self._at)
        self._at += n
        return n


def read(stream: Stream, count: int) -> list[Any]:
    out: list[Any] = []
    while len(out) < count:
        try:
            out.append(stream.next())
        except StopIteration:
            break
        except ValueError as error:
            out.append(repr(error))
    return out


def read_chunks(stream: Stream, most: int) -> list[Any]:
    out: list[Any] = []
    while True:
        try:
            chunk = stream.next_chunk(most, 1 << 20)
        except ValueError as error:
            out.append(repr(error))
            continue
        if not chunk:
            return out
        assert len(chunk) <= most
        out += chunk


def shuffled(source: Node, size: int, epoch: int = 0, **fields: Any) -> Stream:
    node = Shuffle(input=source, buffer_size=size, **fields)
    return open_stream(node, Context(seed=5, epoch=(epoch,)))


@given(n=st.integers(0, 300), size=st.integers(1, 400), most=st.integers(1, 50))
def test_every_element_comes_once_however_it_is_read(n: int, size: int, most: int) -> None:
    one_by_one = read(shuffled(Counting(length=n), size), n + 1)
    assert sorted(one_by_one) == list(range(n))
    assert read_chunks(shuffled(Counting(length=n), size), most) == one_by_one


def test_no_element_comes_before_it_fits_the_buffer() -> None:
    order = read(shuffled(Counting(length=5000), 10), 5000)
    assert order != sorted(order)
    assert all(element < position + 10 for position, element in enumerate(order))


def test_a_buffer_of_one_keeps_the_order() -> None:
    assert read(shuffled(Counting(length=50), 1), 50) == list(range(50))


def test_every_order_is_as_likely() -> None:
    counts = Counter(
        tuple(read(shuffled(Counting(length=4), 4, epoch), 4)) for epoch in range(4800)
    )
    assert len(counts) == 24
    assert max(abs(count - 200) for count in counts.values()) < 75  # 5 standard deviations


def test_a_pass_has_its_own_order_and_it_can_be_had_again() -> None:
    first, again, second = (read(shuffled(Counting(length=99), 20, e), 99) for e in (0, 0, 1))
    assert first == again != second


def test_without_reshuffling_every_pass_has_the_same_order() -> None:
    fields = {"seed": 3, "reshuffle_each_iteration": False}
    first, second = (read(shuffled(Counting(length=99), 20, e, **fields), 99) for e in (0, 1))
    assert first == second


def test_seeds_make_orders() -> None:
    one, other = (read(shuffled(Counting(length=99), 99, seed=seed), 99) for seed in (1, 2))
    assert one != other


@given(
    n=st.integers(0, 3000),
    size=st.integers(1, 700),
    before=st.integers(0, 800),
    skip=st.integers(0, 3500),
    bad=st.sampled_from([0, 3, 100]),
    known=st.booleans(),
    chunks=st.booleans(),
)
@settings(max_examples=200)
def test_advance_equals_dropping(
    n: int, size: int, before: int, skip: int, bad: int, known: bool, chunks: bool
) -> None:
    declared = None if known else UNKNOWN_CARDINALITY
    everything = read(shuffled(Counting(length=n, bad=bad), size), n + 1)
    stream = shuffled(Counting(length=n, declared=declared, bad=bad), size)
    assert read(stream, before) == everything[:before]
    assert stream.advance(skip) == max(0, min(skip, n - before))
    assert (read_chunks(stream, 13) if chunks else read(stream, n + 1)) == everything[
        before + skip :
    ]


def test_advance_twice_equals_dropping_both() -> None:
    everything = read(shuffled(Counting(length=5000), 50), 5000)
    stream = shuffled(Counting(length=5000), 50)
    assert stream.advance(1500) == 1500
    assert stream.next() == everything[1500]
    assert stream.advance(3000) == 3000
    assert read(stream, 5000) == everything[4501:]


@pytest.mark.parametrize("length", [100_000, None])
def test_advance_computes_only_what_stays_buffered(length: int | None) -> None:
    source = Counting(length=length)
    stream = shuffled(source, 64)
    assert stream.advance(90_000) == 90_000
    assert len(source.computed) == 64


def test_advance_over_the_end_computes_nothing() -> None:
    source = Counting(length=1000)
    stream = shuffled(source, 64)
    assert stream.advance(2000) == 1000
    assert source.computed == []
    with pytest.raises(StopIteration):
        stream.next()


def test_an_endless_input_of_nothing_ends() -> None:
    stream = shuffled(Counting(length=0, declared=INFINITE_CARDINALITY), 10)
    assert stream.advance(5) == 0
    assert stream.next_chunk(5, 100) == []


def test_an_input_shorter_than_declared_is_an_error_not_a_loss() -> None:
    stream = shuffled(Counting(length=500, declared=1000), 10)
    with pytest.raises(FailedPreconditionError, match=r"ended after 500 .* is 1000"):
        stream.advance(900)


def test_errors_travel_to_where_they_are_drawn() -> None:
    items = read(shuffled(Counting(length=200, bad=10), 50), 201)
    assert sorted(str(x) for x in items) == sorted(
        f"ValueError({x})" if x % 10 == 0 else str(x) for x in range(200)
    )


def test_rows_of_arrays_are_not_copied() -> None:
    rows = [np.zeros(3) for _ in range(4)]
    node = Map(input=Range(start=0, stop=4, step=1), function=Pickled.of(lambda i: rows[i]))
    stream = shuffled(node, 2)
    assert {id(x) for x in read(stream, 4)} == {id(row) for row in rows}
    stream.close()


def test_a_buffer_of_unknown_cardinality_is_of_all_elements() -> None:
    odd = Dataset.range(5_000).filter(lambda x: x % 2)
    dataset = odd.shuffle(odd.cardinality(), seed=3)
    assert sorted(dataset) == list(range(1, 5_000, 2))
    # Of a buffer of any smaller size, the last element could not be the first.
    firsts = [next(dataset.iterator(epoch=epoch)) for epoch in range(40)]
    assert max(firsts) > 4_000
    check_verbs(lambda: odd.take(40).shuffle(UNKNOWN_CARDINALITY))
    check_verbs(lambda: Dataset.range(40).shuffle(UNKNOWN_CARDINALITY))


def test_a_whole_shuffle_ends_a_zip_with_an_endless_input():
    zipped = Dataset.zip(Dataset.counter(), Dataset.range(5)).map(lambda x, y: (x, y))
    shuffled = zipped.shuffle(UNKNOWN_CARDINALITY, seed=1)
    assert sorted(shuffled) == [(i, i) for i in range(5)]
