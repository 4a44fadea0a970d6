"""Random streams are keyed by seed, node and epoch."""

import dataclasses

from stoker import Dataset
from stoker.dataset.execute import Context
from stoker.dataset.node import number
from stoker.dataset.random import rng

TREE = Dataset.range(3).batch(1).node
CONTEXT = Context(seed=7, epoch=(1, 2), numbers=number(TREE))


def draw(
    context: Context, *, node: int = 1, seed: int | None = None, per_epoch: bool = True
) -> int:
    chosen = TREE if node else TREE.inputs[0]
    return int(rng(context, chosen, seed, per_epoch=per_epoch).integers(2**60))


def test_the_same_key_draws_the_same() -> None:
    assert draw(CONTEXT) == draw(dataclasses.replace(CONTEXT))


def test_every_part_of_the_key_counts() -> None:
    draws = {
        draw(CONTEXT),
        draw(CONTEXT, node=0),
        draw(CONTEXT, seed=8),
        draw(dataclasses.replace(CONTEXT, seed=9)),
        draw(dataclasses.replace(CONTEXT, epoch=(1, 3))),
        draw(dataclasses.replace(CONTEXT, epoch=(1,))),
        draw(CONTEXT, seed=-1),
    }
    assert len(draws) == 7


def test_an_explicit_seed_stands_in_for_the_contexts() -> None:
    assert draw(CONTEXT, seed=7) == draw(CONTEXT)
    assert draw(CONTEXT, seed=5) == draw(dataclasses.replace(CONTEXT, seed=1), seed=5)


def test_without_the_epoch_every_pass_draws_the_same() -> None:
    later = dataclasses.replace(CONTEXT, epoch=(9,))
    assert draw(CONTEXT, per_epoch=False) == draw(later, per_epoch=False)
