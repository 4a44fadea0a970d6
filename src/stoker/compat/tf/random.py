"""Seeds of datasets: the global seed of `tf.random.set_seed`, and seeds drawn from the global."""

import itertools
import threading
from typing import Any

import numpy as np

from stoker.compat.tf.missing import missing
from stoker.dataset import arguments
from stoker.dataset.drawn_seeds import DrawnSeed, Salt
from stoker.dataset.random import in_function

_SEED_MASK = 2**64 - 1

_global: int | None = None
_draws = np.random.default_rng()
_count = itertools.count(1)
_lock = threading.Lock()


def set_seed(seed: int | None) -> None:
    """Set the global seed, from which datasets constructed afterwards draw theirs.

    Each dataset, and each method that is random and has no seed, draws the next seed: two equal
    pipelines differ, and a program that sets the same seed and constructs the same pipelines
    repeats the pipelines. A method's own seed is combined with the global seed. The random numbers
    differ from TensorFlow's. As `tf.random.set_seed`.

    Args:
        seed: an int of 64 bits, or ``None`` to draw seeds from the operating system again.

    Raises:
        InvalidTypeError: if `seed` is neither an int nor None.
        InvalidArgumentError: if `seed` is not an int of 64 bits.

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


def drawn_seed() -> DrawnSeed | None:
    """Return the seed of a dataset constructed now; ``None`` without a global seed.

    The datasets that a function constructs have none: theirs follow from the element that the
    function was called with.
    """
    with _lock:
        # A dataset made in a function must be the same for the same element, in any process.
        if _global is None or in_function():
            return None
        return DrawnSeed(int(_draws.integers(2**63)), from_global=True)


def salt(own: int | None) -> Salt:
    """Return the salt of a random node constructed now.

    Args:
        own: the seed of the node; ``None``: the node follows that of its dataset.
    """
    with _lock:
        if in_function() or (_global is None and own is not None):
            return Salt()
        if _global is None:
            # As in TensorFlow, two shuffles of one pipeline draw different numbers.
            return Salt(next(_count))
        if own is None:
            return Salt(int(_draws.integers(1, 2**32)))
        sequence = np.random.SeedSequence(_global & _SEED_MASK)
        return Salt(int(sequence.generate_state(1, np.uint32)[0]))


def __getattr__(name: str) -> Any:
    raise missing("tf.random", name)
