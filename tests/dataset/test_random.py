"""Random streams are keyed by seed, node and epoch; in functions also by position."""

import random
import threading
from typing import Any

import pytest
from msgspec.structs import replace

import stoker
from stoker import Dataset, Options
from stoker.dataset.random import generator, keyed, rng
from stoker.dataset.tree.node import Context, number
from stoker.errors import FailedPreconditionError, InvalidArgumentError

TREE = Dataset.range(3).batch(1).node
CONTEXT = Context(seed=7, epoch=(1, 2), numbers=number(TREE))


def draw(
    context: Context, *, node: int = 1, seed: int | None = None, per_epoch: bool = True
) -> int:
    chosen = TREE if node else TREE.inputs[0]
    return int(rng(context, chosen, seed, per_epoch=per_epoch).integers(2**60))


def test_the_same_key_draws_the_same() -> None:
    assert draw(CONTEXT) == draw(replace(CONTEXT))


def test_every_part_of_the_key_counts() -> None:
    draws = {
        draw(CONTEXT),
        draw(CONTEXT, node=0),
        draw(CONTEXT, seed=8),
        draw(replace(CONTEXT, seed=9)),
        draw(replace(CONTEXT, epoch=(1, 3))),
        draw(replace(CONTEXT, epoch=(1,))),
        draw(CONTEXT, seed=-1),
    }
    assert len(draws) == 7


def test_an_explicit_seed_overrides_the_contexts() -> None:
    assert draw(CONTEXT, seed=7) == draw(CONTEXT)
    assert draw(CONTEXT, seed=5) == draw(replace(CONTEXT, seed=1), seed=5)


def test_without_per_epoch_every_epoch_draws_the_same() -> None:
    later = replace(CONTEXT, epoch=(9,))
    assert draw(CONTEXT, per_epoch=False) == draw(later, per_epoch=False)


def drawn(_: Any = None) -> int:
    return int(generator().integers(2**60))


SEEDED = Options(seed=11)


@pytest.mark.parametrize("parallel", [None, 1, 4, stoker.AUTOTUNE])
@pytest.mark.parametrize("batch", [None, 3])
def test_a_function_draws_by_position_however_it_is_run(
    parallel: int | None, batch: int | None
) -> None:
    dataset = Dataset.range(50).map(drawn, num_parallel_calls=parallel).with_options(SEEDED)
    expected = list(Dataset.range(50).map(drawn).with_options(SEEDED).iterator(epoch=2))
    assert len(set(expected)) == 50
    if batch is not None:
        batches = dataset.batch(batch).map(lambda rows: rows.tolist())
        found = [value for rows in batches.iterator(epoch=2) for value in rows]
    else:
        found = list(dataset.iterator(epoch=2))
    assert found == expected


def test_a_function_draws_by_position_wherever_reading_begins() -> None:
    dataset = Dataset.range(200).map(drawn).with_options(SEEDED)
    expected = list(dataset.iterator(epoch=0))
    assert list(dataset.skip(70).iterator(epoch=0)) == expected[70:]
    shuffled = Dataset.range(200).shuffle(10, seed=3).map(drawn).with_options(SEEDED)
    # The key is the position in the function's input, not the element.
    assert list(shuffled.iterator(epoch=0))[:5] != expected[:5]


def test_every_epoch_every_node_and_every_seed_draw_differently() -> None:
    one = Dataset.range(5).map(drawn)
    two = Dataset.range(5).map(lambda x: x).map(drawn)
    draws = [
        list(one.with_options(SEEDED).iterator(epoch=0)),
        list(one.with_options(SEEDED).iterator(epoch=1)),
        list(one.with_options(Options(seed=12)).iterator(epoch=0)),
        list(two.with_options(SEEDED).iterator(epoch=0)),
        list(one.repeat(2).with_options(SEEDED).iterator(epoch=0))[5:],
    ]
    assert len({value for values in draws for value in values}) == 25


def test_an_explicit_seed_in_a_function_overrides_the_datasets() -> None:
    def of_seed(x: int) -> int:
        return int(generator(seed=5).integers(2**60))

    dataset = Dataset.range(5).map(of_seed)
    first, second = (dataset.with_options(Options(seed=s)) for s in (1, 2))
    assert list(first.iterator(epoch=0)) == list(second.iterator(epoch=0))
    assert list(first.iterator(epoch=0)) != list(first.iterator(epoch=1))


def test_a_call_goes_on_with_its_own_generator() -> None:
    def twice(x: int) -> tuple[int, int]:
        return drawn(), drawn()

    pairs = list(Dataset.range(3).map(twice))
    assert len({value for pair in pairs for value in pair}) == 6


def test_a_predicate_draws_by_position_in_every_verb() -> None:
    def half(x: int) -> bool:
        return bool(generator().random() < 0.5)

    dataset = Dataset.range(300).filter(half).with_options(SEEDED)
    expected = list(dataset.iterator(epoch=0))
    assert 100 < len(expected) < 200
    assert list(dataset.skip(37).iterator(epoch=0)) == expected[37:]
    batches = list(dataset.batch(7).iterator(epoch=0))
    assert [value for batch in batches for value in batch.tolist()] == expected


def test_nested_calls_have_separate_keys_and_restore_the_outer() -> None:
    def outer(x: int) -> tuple[int, list[int], int]:
        before = drawn()
        inner = list(Dataset.range(2).map(drawn).with_options(Options(seed=1)).iterator(epoch=0))
        return before, inner, drawn()

    first, second = Dataset.range(2).map(outer).with_options(SEEDED).iterator(epoch=0)
    assert first[1] == second[1]
    assert len({first[0], first[2], second[0], second[2], *first[1]}) == 6


def test_errors_do_not_shift_the_draws() -> None:
    def picky(x: int) -> int:
        value = drawn()
        if x % 3 == 1:
            raise ValueError(x)
        return value

    expected = list(Dataset.range(9).map(drawn).with_options(SEEDED).iterator(epoch=0))
    iterator = Dataset.range(9).map(picky).with_options(SEEDED).iterator(epoch=0)
    found: list[int | None] = []
    while len(found) < 9:
        try:
            found.append(next(iterator))
        except ValueError:
            found.append(None)
    assert found == [None if i % 3 == 1 else value for i, value in enumerate(expected)]


def test_generator_outside_a_function_fails_with_the_remedy() -> None:
    with pytest.raises(FailedPreconditionError, match=r"numpy\.random\.default_rng"):
        stoker.random.generator()

    def elsewhere(x: int) -> str:
        failures: list[str] = []

        def run() -> None:
            try:
                generator()
            except FailedPreconditionError as error:
                failures.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return failures[0]

    assert "in the thread that calls them" in next(iter(Dataset.range(1).map(elsewhere)))
    with pytest.raises(FailedPreconditionError):
        stoker.random.generator()


@pytest.mark.parametrize("seed", ["a", 1.5, True])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="`seed` must be an int"):
        list(Dataset.range(1).map(lambda x: generator(seed)))


def test_keyed_draws_by_position() -> None:
    draws = []
    for index in (4, 4, 5):
        with keyed(CONTEXT, TREE, index):
            draws.append(drawn())
    assert draws[0] == draws[1] != draws[2]


def test_seeding_the_standard_library_changes_no_draws() -> None:
    def seeding(x: int) -> int:
        random.seed(0)
        return drawn()

    dataset = Dataset.range(5).map(seeding)
    assert len(set(dataset)) == 5
