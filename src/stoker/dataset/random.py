"""Randomness: every random stream is keyed, so that any of them can be drawn again anywhere."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from stoker.dataset.execute import Context
    from stoker.dataset.node import Node

_SEED_MASK = 2**64 - 1


def node_seed(
    context: "Context", node: "Node", seed: int | None = None, *, per_epoch: bool = True
) -> "np.random.SeedSequence":
    """The seed of `node` in this pass: a function of (seed, the node's number, the epoch).

    Args:
        context: of the pass.
        node: one of the tree the context numbers.
        seed: what the user gave; ``None`` for the context's.
        per_epoch: False to draw the same in every pass.
    """
    entropy = context.seed if seed is None else seed
    epoch = context.epoch if per_epoch else ()
    key = (context.numbers[node], *epoch)
    return np.random.SeedSequence(entropy & _SEED_MASK, spawn_key=key)


def rng(
    context: "Context", node: "Node", seed: int | None = None, *, per_epoch: bool = True
) -> "np.random.Generator":
    """A generator seeded by `node_seed`."""
    return np.random.Generator(np.random.PCG64(node_seed(context, node, seed, per_epoch=per_epoch)))
