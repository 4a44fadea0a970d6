"""counter."""

import pytest

import stoker
from stoker import Dataset, TensorSpec
from stoker.dataset.tree.splits import ENDLESS, IndexSplits
from stoker.errors import InvalidArgumentError
from tests.dataset.splits import ScriptedSplits
from tests.dataset.verbs import check_verbs, opened, positions


@pytest.mark.parametrize(("start", "step"), [(0, 1), (5, -2), (7, 0), (-3, 1000)])
def test_it_counts_from_start_by_step(start: int, step: int) -> None:
    found = list(Dataset.counter(start, step).take(500))
    assert found == [start + i * step for i in range(500)]
    assert {type(x) for x in found} == {int}
    check_verbs(lambda: Dataset.counter(start, step).take(100))


def test_advance_costs_nothing() -> None:
    stream = opened(Dataset.counter(1, 3))
    assert stream.advance(10**15) == 10**15
    assert stream.next() == 1 + 3 * 10**15
    assert stream.next_chunk(2, 1 << 20)[-1] > 3 * 10**15


def test_it_has_no_end_and_can_be_split() -> None:
    dataset = Dataset.counter()
    assert dataset.cardinality() == stoker.INFINITE_CARDINALITY
    assert dataset.element_spec == TensorSpec((), "int64")
    assert dataset.node.splits() == IndexSplits(ENDLESS)
    splits = ScriptedSplits({0: [[(10, 12), (5, 6)]]})
    assert positions(opened(Dataset.counter(step=2), splits=splits)) == [20, 22, 10]


def test_arguments_must_be_ints() -> None:
    with pytest.raises(InvalidArgumentError, match=r"`step` must be an int of 64 bits; got 0\.5"):
        Dataset.counter(0, 0.5)  # type: ignore[arg-type]
