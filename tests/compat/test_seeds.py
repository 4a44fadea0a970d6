"""tf.random.set_seed: the seeds of datasets, as in TensorFlow 2.21."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stoker
from stoker.compat import tf

D: Any = tf.data.Dataset


@pytest.fixture(autouse=True)
def _no_seed() -> Iterator[None]:
    yield
    tf.random.set_seed(None)


def halves() -> list[Any]:
    return [D.range(100), D.range(100, 200)]


RANDOM: dict[str, Callable[..., Any]] = {
    "shuffle": lambda **seed: D.range(50).shuffle(50, **seed),
    "random": lambda **seed: D.random(**seed).take(5),
    "sample_from_datasets": lambda **seed: D.sample_from_datasets(halves(), **seed),
    "rejection_resample": lambda **seed: D.range(200).rejection_resample(
        lambda x: x % 2, [0.3, 0.7], [0.5, 0.5], **seed
    ),
}


def orders(
    make: Callable[..., Any], globally: int | None, **own: int
) -> tuple[list[Any], list[Any]]:
    tf.random.set_seed(globally)
    one, other = make(**own), make(**own)
    return list(one), list(other)


@pytest.mark.parametrize("make", RANDOM.values(), ids=RANDOM)
def test_equal_pipelines_draw_different_seeds(make):
    one, other = orders(make, 3)
    assert one != other
    assert orders(make, 3) == (one, other)
    assert orders(make, 4) != (one, other)


@pytest.mark.parametrize("make", RANDOM.values(), ids=RANDOM)
def test_own_seed_is_combined_with_the_global_one(make):
    one, other = orders(make, 3, seed=1)
    assert one == other
    assert orders(make, 3, seed=1)[0] == one
    assert orders(make, 4, seed=1)[0] != one
    assert orders(make, 3, seed=2)[0] != one


@pytest.mark.parametrize("make", RANDOM.values(), ids=RANDOM)
def test_own_seed_alone_counts_without_a_global_one(make):
    assert orders(make, None, seed=1) == orders(make, None, seed=1)
    assert orders(make, None)[0] != orders(make, None)[0]


def test_two_shuffles_of_one_source_differ():
    tf.random.set_seed(3)
    source = D.range(50)
    assert list(source.shuffle(50)) != list(source.shuffle(50))


def test_file_orders_differ(tmp_path):
    for name in range(20):
        (tmp_path / f"{name}.txt").touch()
    one, other = orders(lambda: D.list_files(str(tmp_path / "*")), 3)
    assert one != other
    assert sorted(one) == sorted(other)
    assert orders(lambda: D.list_files(str(tmp_path / "*")), 3) == (one, other)


def test_random_numbers_of_functions_are_repeated():
    def noisy() -> Any:
        return D.range(3).map(lambda x: stoker.random.generator().random())

    one, other = orders(noisy, 3)
    assert one != other
    assert orders(noisy, 3) == (one, other)


def test_datasets_that_functions_construct_follow_the_element():
    def nested() -> Any:
        return D.range(2).flat_map(lambda _: D.range(20).shuffle(20))

    tf.random.set_seed(3)
    dataset = nested()
    epoch = list(dataset.iterator(epoch=0))
    assert epoch[:20] != epoch[20:]
    assert list(dataset.iterator(epoch=0)) == epoch
    tf.random.set_seed(3)
    assert list(nested().iterator(epoch=0)) == epoch


def test_later_epochs_of_a_seeded_shuffle_differ():
    tf.random.set_seed(3)
    dataset = D.range(50).shuffle(50)
    assert list(dataset) != list(dataset)
    copy = pickle.loads(pickle.dumps(dataset))
    assert list(copy.iterator(epoch=0)) == list(dataset.iterator(epoch=0))


def test_seed_of_another_type_is_refused():
    with pytest.raises(TypeError, match="`seed`"):
        tf.random.set_seed("a")  # type: ignore[arg-type]
