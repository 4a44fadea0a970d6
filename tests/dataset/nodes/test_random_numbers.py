"""random."""

import numpy as np
import pytest

import stoker
from stoker import Dataset, TensorSpec
from stoker.dataset.tree.splits import ENDLESS, IndexSplits
from stoker.errors import InvalidArgumentError
from tests.dataset.splits import ScriptedSplits
from tests.dataset.verbs import check_verbs, opened, positions


def test_numbers_are_ints_of_32_bits_spread_evenly() -> None:
    found = list(Dataset.random(seed=1).take(40_000))
    assert {type(x) for x in found} == {int}
    assert 0 <= min(found) < 2**20
    assert 2**32 - 2**20 < max(found) < 2**32
    assert np.bincount(np.array(found) >> 30).min() > 9500
    assert len(set(found)) > 39_900


def test_a_seed_yields_the_same_numbers_in_every_release() -> None:
    assert list(Dataset.random(seed=4).take(3)) == [2122255525, 2786305146, 445797930]


def test_all_verbs_read_the_same_numbers() -> None:
    check_verbs(lambda: Dataset.random(seed=3).take(200))
    check_verbs(lambda: Dataset.random().take(200))


@pytest.mark.parametrize("seed", [9, None])
def test_epochs_are_alike_unless_rerandomized(seed: int | None) -> None:
    same = Dataset.random(seed).take(5)
    assert list(same) == list(same)
    anew = Dataset.random(seed, rerandomize_each_iteration=True).take(5)
    assert list(anew) != list(anew)
    assert list(anew.iterator(epoch=2)) == list(anew.iterator(epoch=2))


def test_seeds_and_nodes_draw_differently() -> None:
    assert list(Dataset.random(1).take(5)) != list(Dataset.random(2).take(5))
    assert list(Dataset.random().take(5)) != list(Dataset.random().take(5))
    left, right = zip(*Dataset.zip(Dataset.random(1), Dataset.random(1)).take(5), strict=True)
    assert left != right


def test_a_number_depends_on_its_position_only() -> None:
    whole = list(Dataset.random(seed=6).take(1000))
    for position in (0, 1, 7, 8, 9, 500, 999):
        stream = opened(Dataset.random(seed=6), epoch=(0,))
        stream.advance(position)
        assert stream.next() == whole[position]
    splits = ScriptedSplits({0: [[(700, 703), (11, 20)]]})
    found = positions(opened(Dataset.random(seed=6), splits=splits))
    assert found == whole[700:703] + whole[11:20]


def test_advance_costs_nothing() -> None:
    assert opened(Dataset.random()).advance(10**15) == 10**15


def test_it_has_no_end_and_can_be_split() -> None:
    dataset = Dataset.random()
    assert dataset.cardinality() == stoker.INFINITE_CARDINALITY
    assert dataset.element_spec == TensorSpec((), "int64")
    assert dataset.node.splits() == IndexSplits(ENDLESS)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match="`seed` must be an int of 64 bits or None"):
        Dataset.random(seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="`rerandomize_each_iteration` must be True or"):
        Dataset.random(rerandomize_each_iteration=1)  # type: ignore[arg-type]
