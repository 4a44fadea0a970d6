"""The seed of datasets made from here on."""

from typing import Any

from stoker.compat.tf.missing import missing
from stoker.dataset import arguments

_seed: int | None = None


def set_seed(seed: int | None) -> None:
    """The seed of every dataset made afterwards in this process; as tf.random.set_seed.

    It is what `stoker.Options.seed` is for a dataset. The draws themselves are not TensorFlow's.

    Args:
        seed: an int of 64 bits, or ``None`` to draw one per dataset again.

    Raises:
        InvalidArgumentError: it is neither.

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
    """What `set_seed` was given last."""
    return _seed


def __getattr__(name: str) -> Any:
    raise missing("tf.random", name)
