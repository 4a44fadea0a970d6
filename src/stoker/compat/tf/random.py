"""Default seed of new datasets."""

from typing import Any

from stoker.compat.tf.missing import missing
from stoker.dataset import arguments

_seed: int | None = None


def set_seed(seed: int | None) -> None:
    """Set the seed of every dataset constructed afterwards in this process.

    It has the effect of `stoker.Options.seed`. The random numbers differ from TensorFlow's. As
    `tf.random.set_seed`.

    Args:
        seed: an int of 64 bits, or ``None`` to draw one per dataset again.

    Raises:
        InvalidArgumentError: if `seed` is neither an int of 64 bits nor None.

    Example:
        >>> from stoker.compat import tf
        >>> tf.random.set_seed(5)
        >>> tf.data.Dataset.range(3).options().seed
        5
        >>> tf.random.set_seed(None)
    """
    global _seed
    _seed = arguments.seed(seed)


def get_seed() -> int | None:
    """Return the seed that `set_seed` set last."""
    return _seed


def __getattr__(name: str) -> Any:
    raise missing("tf.random", name)
