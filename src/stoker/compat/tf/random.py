"""Seeds of datasets: the global seed of `tf.random.set_seed`, and those drawn from it."""

import threading
from typing import Any

import numpy as np

from stoker.compat.tf.missing import missing
from stoker.dataset import arguments
from stoker.dataset.random import in_function

_SEED_MASK = 2**64 - 1

_global: int | None = None
_draws = np.random.default_rng()
_lock = threading.Lock()


def set_seed(seed: int | None) -> None:
    """Set the global seed, from which datasets constructed afterwards draw theirs.

    Each dataset, and each method that is random and has no seed, draws the next seed: two equal
    pipelines differ, and a program that sets the same seed and constructs the same pipelines
    repeats them. A method's own seed is combined with the global seed. The random numbers differ
    from TensorFlow's. As `tf.random.set_seed`.

    Args:
        seed: an int of 64 bits, or ``None`` to draw seeds from the operating system again.

    Raises:
        InvalidTypeError: if `seed` is neither an int nor None.
        InvalidArgumentError: if it is not an int of 64 bits.

    Example:
        >>> from stoker.compat import tf
        >>> def orders():
        ...     tf.random.set_seed(5)
        ...     return [list(tf.data.Dataset.range(50).shuffle(50)) for _ in range(2)]
        >>> first, second = orders()
        >>> first == second, [first, second] == orders()
        (False, True)
        >>> tf.random.set_seed(None)
    """
    global _global, _draws
    found = arguments.seed(seed)
    with _lock:
        _global = found
        _draws = np.random.default_rng(None if found is None else found & _SEED_MASK)


def op_seed(seed: int | None) -> int | None:
    """Return the seed of a dataset or method constructed now, given its own seed.

    Without a global seed it is the own seed. The datasets that a function constructs get none:
    theirs follow from the element that the function was called with.
    """
    with _lock:
        if _global is None or (seed is None and in_function()):
            return seed
        if seed is None:
            return int(_draws.integers(2**63))
        sequence = np.random.SeedSequence(_global & _SEED_MASK, spawn_key=(seed & _SEED_MASK,))
        return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def __getattr__(name: str) -> Any:
    raise missing("tf.random", name)
