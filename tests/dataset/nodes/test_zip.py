"""zip."""

import threading
from collections import namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import stoker
from stoker import Dataset, Options, TensorSpec, UnknownSpec
from stoker.dataset.tree.splits import IndexSplits, Unsplittable
from stoker.dataset.tree.structure import structure_of
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import FailedPreconditionError, InvalidArgumentError
from tests.dataset.verbs import check_verbs, failed, opened, tape
from tests.serving import eventually

INT = TensorSpec((), "int64")
Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024


@dataclass
class Example:
    x: Any
    y: Any


def failing(count: int, *at: int, offset: int = 0) -> Dataset:
    def function(x: int) -> int:
        if x in at:
            raise ValueError(f"no {x} of {offset}")
        return x + offset

    return Dataset.range(count).map(function)


A, B = Dataset.range(3), Dataset.range(10, 14)


@pytest.mark.parametrize(
    ("zipped", "expected"),
    [
        (Dataset.zip(A, B), [(0, 10), (1, 11), (2, 12)]),
        (Dataset.zip((A, B)), [(0, 10), (1, 11), (2, 12)]),
        (Dataset.zip(datasets=(B, A)), [(10, 0), (11, 1), (12, 2)]),
        (Dataset.zip(A), [0, 1, 2]),
        (Dataset.zip((A,)), [(0,), (1,), (2,)]),
        (Dataset.zip({"a": A, "b": B}).take(1), [{"a": 0, "b": 10}]),
        (Dataset.zip(A, (B, {"c": A})).take(1), [(0, (10, {"c": 0}))]),
        (Dataset.zip(Pair(A, B)).take(1), [Pair(0, 10)]),
        (Dataset.zip((A, Example(x=B, y=A))).take(1), [(0, Example(10, 0))]),
        (Dataset.zip(A, ()).take(1), [(0, ())]),
        (Dataset.zip(A, A), [(0, 0), (1, 1), (2, 2)]),
        (Dataset.zip(A, Dataset.range(0)), []),
    ],
)
def test_elements_are_nested_as_the_datasets_are(zipped: Dataset, expected: list[Any]) -> None:
    elements = list(zipped)
    assert elements == expected
    assert [type(element) for element in elements] == [type(element) for element in expected]


def test_user_classes_survive_zip_and_its_wire_form() -> None:
    dataset = Dataset.zip(Pair(A, (B, A)))
    assert type(next(iter(dataset))) is Pair
    assert dataset.element_spec == Pair(INT, (INT, INT))
    decoded = Dataset(decode_tree(encode_tree(dataset.node)))
    assert list(decoded) == list(dataset)
    assert structure_of(decoded.node) == structure_of(dataset.node)


def test_the_nesting_is_part_of_the_structure() -> None:
    nests = [(A, B), ((A,), B), {"a": A, "b": B}, {"a": A, "c": B}, Pair(A, B)]
    structures = {structure_of(Dataset.zip(nest).node) for nest in nests}
    assert len(structures) == len(nests)


def test_all_verbs_read_the_same_stream() -> None:
    def make() -> Dataset:
        batches = failing(60, 7, 8).batch(3)
        return Dataset.zip(failing(40, 2, 3, 20), {"b": batches, "f": Dataset.range(99)})

    assert len(check_verbs(make)) == 20
    check_verbs(lambda: Dataset.zip(failing(9, 0), Dataset.range(30).filter(lambda x: x % 3)))
    check_verbs(lambda: Dataset.zip(Dataset.range(30).shuffle(7), Dataset.range(20).prefetch(2)))


def test_an_error_occupies_its_position_in_all_inputs() -> None:
    dataset = Dataset.zip(failing(4, 1), failing(4, 1, 2, offset=10))
    no = [failed(ValueError("no 1 of 0")), failed(ValueError("no 2 of 10"))]
    assert tape(dataset) == [(0, 10), *no, (3, 13)]


def test_chunks_are_as_long_as_the_inputs() -> None:
    stream = opened(Dataset.zip(Dataset.range(100_000), Dataset.range(100_000)))
    chunk = stream.next_chunk(50_000, 1 << 30)
    assert chunk == list(zip(range(50_000), range(50_000), strict=True))


def test_advance_calls_nothing_and_reads_only_as_far_as_needed() -> None:
    called: list[int] = []
    mapped = Dataset.range(10**9).map(called.append)
    stream = opened(Dataset.zip(Dataset.counter().filter(lambda _: True), mapped.take(5)))
    assert stream.advance(10**12) == 5
    assert called == []
    stream = opened(Dataset.zip(mapped, Dataset.range(10**9)))
    assert stream.advance(10**8) == 10**8
    assert stream.next() == (None, 10**8)
    assert called == [10**8]


def test_inputs_are_read_only_as_far_as_needed() -> None:
    called: list[int] = []

    def note(x: int) -> int:
        called.append(x)
        return x

    dataset = Dataset.zip(Dataset.range(100), Dataset.range(100).map(note))
    assert len(list(dataset.take(3))) == 3
    assert called == [0, 1, 2]


def test_caches_of_one_length_are_complete_when_the_zip_ends() -> None:
    called: list[int] = []

    def note(x: int) -> int:
        called.append(x)
        return x

    left, right = (Dataset.range(5).map(note).cache() for _ in range(2))
    dataset = Dataset.zip(left, right)
    first = list(dataset)
    assert len(called) == 10
    assert list(dataset) == first
    assert len(called) == 10


ENDLESS, UNKNOWN = A.repeat(), A.filter(lambda x: x >= 0)


@pytest.mark.parametrize(
    ("datasets", "expected"),
    [
        ((A, B), 3),
        ((ENDLESS, B), 4),
        ((ENDLESS, ENDLESS), stoker.INFINITE_CARDINALITY),
        ((ENDLESS, UNKNOWN), stoker.UNKNOWN_CARDINALITY),
        ((B, UNKNOWN), stoker.UNKNOWN_CARDINALITY),
        ((Dataset.range(0), UNKNOWN), 0),
    ],
)
def test_cardinality_is_that_of_the_shortest(datasets: Any, expected: int) -> None:
    assert Dataset.zip(datasets).cardinality() == expected


def test_spec_is_nested_and_keeps_unknown_parts() -> None:
    dataset = Dataset.zip({"a": A, "b": (A.map(str), A.batch(2))})
    batches = TensorSpec((None,), "int64")
    assert dataset.element_spec == {"a": INT, "b": (UnknownSpec(), batches)}


def test_options_of_all_datasets_are_merged() -> None:
    seeded = A.with_options(Options(seed=5))
    assert Dataset.zip(A, seeded).options().seed == 5


def test_closing_half_way_ends_the_threads_of_all_inputs() -> None:
    inputs = [Dataset.range(1000).map(lambda x: x, num_parallel_calls=2).prefetch(3)] * 3
    with Dataset.zip(*inputs).iterator() as iterator:
        assert next(iterator) == (0, 0, 0)
    # One that is inside a function is not waited for.
    assert eventually(lambda: not any("stoker-reader" in x.name for x in threading.enumerate()))


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        ((), None, "got none"),
        ((A,), (A,), "got both"),
        (([A, B],), None, "not lists"),
        ((A, 3), None, "got 3"),
        ((A, (B, "x")), None, "got 'x'"),
        (((),), None, "at least one dataset"),
    ],
)
def test_wrong_arguments_are_named(arguments: Any, named: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Dataset.zip(*arguments, datasets=named)


# ── how a zip is cut into splits ─────────────────────────────────────────────────────────────────
R = Dataset.range(100)


@pytest.mark.parametrize(
    ("dataset", "count"),
    [
        (Dataset.zip(R, Dataset.range(70)), 70),
        (Dataset.zip(R.map(str).prefetch(2).shuffle(3).enumerate().cache(), R), 100),
        (Dataset.zip(R.cache("kept").snapshot("kept"), R), 100),
        (Dataset.zip(R.batch(8), Dataset.range(50)), 13),
        (Dataset.zip(R.batch(8, drop_remainder=True), Dataset.range(50)), 12),
        (Dataset.zip(R.batch(3).batch(4), R), 9),
        (Dataset.zip(R.batch(3, drop_remainder=True).batch(4), R), 9),
        (Dataset.zip(R, Dataset.counter().batch(4)), 100),
        (Dataset.zip(Dataset.zip(R, R).batch(10), R), 10),
        (Dataset.zip(R.map(str, num_parallel_calls=2).batch(8), R), 13),
    ],
)
def test_a_zip_is_one_index_source_of_its_shortest_branch(dataset: Dataset, count: int) -> None:
    assert dataset.node.splits() == IndexSplits(count)


@pytest.mark.parametrize(
    ("branch", "named"),
    [
        (R.filter(lambda x: x > 1), "`filter`"),
        (R.repeat(2), "`repeat`"),
        (R.take(3), "`take`"),
        (R.flat_map(Dataset.range), "`flat_map`"),
        (R.concatenate(R), "`concatenate`"),
        (Dataset.list_files("/nowhere/*"), "`list_files`"),
        (Dataset.from_generator(list), "`from_generator`"),
    ],
)
def test_branches_whose_counts_are_unknown_cannot_be_cut(branch: Dataset, named: str) -> None:
    splits = Dataset.zip(R, branch).node.splits()
    assert isinstance(splits, Unsplittable)
    assert named in splits.why


@pytest.mark.parametrize("flaky_first", [True, False])
@pytest.mark.parametrize("chunk", [True, False])
def test_inputs_misaligned_by_an_interrupt_are_not_paired(flaky_first: bool, chunk: bool) -> None:
    interrupts = [KeyboardInterrupt()]

    def flaky(x: int) -> int:
        if x == 2 and interrupts:
            raise interrupts.pop()
        return x

    inputs = [Dataset.range(9).map(flaky), Dataset.range(9)]
    dataset = Dataset.zip(*(inputs if flaky_first else inputs[::-1]))
    iterator = dataset.iterator()
    read = partial(next, iterator)
    if chunk:
        stream = opened(dataset)
        read = partial(stream.next_chunk, 9, 1 << 20)
    else:
        assert [read(), read()] == [(0, 0), (1, 1)]
    with pytest.raises(KeyboardInterrupt):
        read()
    state = iterator.state_dict()
    for _ in range(2):
        with pytest.raises(FailedPreconditionError, match="interrupted"):
            read()
    resumed = list(dataset.iterator(state=state))
    assert resumed == [(x, x) for x in range(0 if chunk else 2, 9)]
