"""tf.data.experimental.at: the element at a position of a dataset."""

from typing import Any

from stoker.compat.tf.errors import OutOfRangeError
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.dataset.tree.node import number
from stoker.errors import UnimplementedError


def at(dataset: StokerDataset, index: int) -> Any:
    """Return the element at a position; as `tf.data.experimental.at`.

    The elements are those of one epoch, the same in each call: a shuffled dataset has one order.
    Each call skips the elements before the position at the cost that docs/datasets.md lists under
    ``advance``; it calls the functions of the element itself only. Unlike TensorFlow's, it works
    for every dataset whose epochs can be repeated, and `cache` keeps nothing of it.

    Args:
        dataset: the dataset.
        index: the position, from 0.

    Raises:
        OutOfRangeError: if `index` is negative, or the dataset has no more than `index` elements.
        UnimplementedError: if two epochs of the dataset may differ, as those read from a service.
        InvalidTypeError: if `index` is not an int.

    Example:
        >>> from stoker.compat import tf
        >>> squares = tf.data.Dataset.range(1_000_000).map(lambda x: x * x)
        >>> tf.data.experimental.at(squares, 1000)
        1000000
    """
    position = arguments.integer("index", index)
    for node in number(dataset.node):
        if node.unrepeatable:
            raise UnimplementedError(
                f"Random access is not implemented for `{node.kind}`: {node.unrepeatable}"
            )
    length = dataset.cardinality()
    if position < 0 or 0 <= length <= position:
        raise _out_of_range(position, length)
    with dataset.skip(position).iterator(epoch=0) as iterator:
        for element in iterator:
            return element
    raise _out_of_range(position, length)


def _out_of_range(position: int, length: int) -> OutOfRangeError:
    bound = f" [0, {length})" if length >= 0 else ""
    return OutOfRangeError(f"Index out of range{bound}: {position}")
