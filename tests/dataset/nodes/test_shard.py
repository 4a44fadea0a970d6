"""shard."""

import pytest

import stoker
from stoker import Dataset
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import FailedPreconditionError, InvalidArgumentError
from tests.dataset.splits import ScriptedSplits
from tests.dataset.verbs import check_verbs, failed, opened, tape


@pytest.mark.parametrize("count", [0, 1, 7, 9, 10])
@pytest.mark.parametrize("shards", [1, 2, 3, 11])
def test_shards_part_the_input(count: int, shards: int) -> None:
    for index in range(shards):
        dataset = Dataset.range(count).shard(shards, index)
        assert list(dataset) == list(range(count))[index::shards]
        assert len(dataset) == len(range(count)[index::shards])


@pytest.mark.parametrize("index", [0, 1, 2])
def test_all_verbs_read_the_same_stream(index: int) -> None:
    def flaky(x: int) -> int:
        if x % 7 < 2:
            raise ValueError(f"no {x}")
        return x

    check_verbs(lambda: Dataset.range(61).map(flaky).shard(3, index))
    check_verbs(lambda: Dataset.range(60).filter(lambda x: x % 4).shard(3, index).shard(2, 1))


def test_functions_are_not_called_for_other_shards() -> None:
    called: list[int] = []
    list(Dataset.range(10).map(called.append).shard(4, 1))
    assert called == [1, 5, 9]


def test_an_error_in_another_shard_is_not_seen() -> None:
    dataset = Dataset.range(4).map(lambda x: 6 // (x - 1))
    assert list(dataset.shard(2, 0)) == [-6, 6]
    error = failed(ZeroDivisionError("integer division or modulo by zero"))
    assert tape(dataset.shard(2, 1)) == [error, 3]


def test_advance_costs_what_the_inputs_does() -> None:
    called: list[int] = []
    stream = opened(Dataset.range(10**9).map(called.append).shard(10, 3))
    assert stream.advance(10**7) == 10**7
    assert stream.next() is None
    assert called == [10**8 + 3]
    assert stream.advance(10**9) == 10**8 - 10**7 - 1


def test_with_splits_a_chunk_does_not_wait_for_the_next() -> None:
    dataset = Dataset.range(100).shard(2, 0)
    handed: list[int] = []

    class Splits(ScriptedSplits):
        def open(self, source):
            for run in ([0, 3], [3, 6], [6, 9]):
                handed.append(run[0])
                yield run

    stream = opened(dataset, splits=Splits({}))
    assert stream.next_chunk(10, 1 << 20) == [0]
    assert handed == [0]
    stream.close()


FINITE = Dataset.range(5)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (FINITE.repeat(), stoker.INFINITE_CARDINALITY),
        (FINITE.filter(lambda _: True), stoker.UNKNOWN_CARDINALITY),
    ],
)
def test_cardinality_of_unknown_and_infinite_inputs(dataset: Dataset, expected: int) -> None:
    assert dataset.shard(2, 0).cardinality() == expected


@pytest.mark.parametrize("index", [stoker.SHARD_HINT, 0, 5])
def test_a_hint_can_be_built_and_sent_but_not_read(index: int) -> None:
    dataset = FINITE.shard(stoker.SHARD_HINT, index)
    assert dataset.element_spec == FINITE.element_spec
    decoded = decode_tree(encode_tree(dataset.node))
    assert (decoded.num_shards, decoded.index) == (-1, index)  # type: ignore[attr-defined]
    with pytest.raises(FailedPreconditionError, match=r"ShardingPolicy\.HINT"):
        next(iter(dataset))


@pytest.mark.parametrize(
    ("shards", "index", "words"),
    [
        (0, 0, "`num_shards` must be an int of at least 1; got 0"),
        (-2, 0, "`num_shards` must be an int of at least 1; got -2"),
        (3, 3, r"Index must be between 0 and 2 \(currently index = 3\)."),
        (5, stoker.SHARD_HINT, r"Index must be between 0 and 4 \(currently index = -1\)."),
        (3, "a", "`index` must be an int, the number of a shard; got 'a'"),
        (stoker.SHARD_HINT, None, "`index` must be"),
    ],
)
def test_wrong_arguments_are_named(shards: int, index: int, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        FINITE.shard(shards, index)
