"""tf.data.experimental.at: the element at a position of a dataset."""

from contextlib import suppress
from typing import Any

from stoker.compat.tf.errors import OutOfRangeError
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.dataset.nodes.cache import Cache, is_filled
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Node, number
from stoker.errors import FailedPreconditionError, UnimplementedError

_KEEPS_POSITIONS = frozenset(
    {"batch", "concatenate", "enumerate", "map", "padded_batch", "prefetch", "ragged_batch"}
    | {"repeat", "shard", "shuffle", "skip", "take", "zip"}
)
"""Nodes whose cardinality is unknown only if that of an input is."""


def at(dataset: StokerDataset, index: int) -> Any:
    """Return the element at a position; as `tf.data.experimental.at`.

    Elements come from a fixed epoch, the same in each call: a shuffled dataset has a fixed order.
    Each call skips the elements before the position at the cost that docs/datasets.md lists under
    ``advance``, and calls the functions of the element itself only. If the cardinality is unknown,
    as after `filter`, append a `cache`: the first call reads all elements into the cache.

    Args:
        dataset: the dataset.
        index: the position, from 0.

    Raises:
        OutOfRangeError: if `index` is negative, or the dataset has no more than `index` elements.
        FailedPreconditionError: if the dataset is infinite, or the lengths of batches that are cut
            are unknown.
        UnimplementedError: if a node drops or adds elements, or two epochs may differ, like epochs
            read from a service.
        InvalidTypeError: if `index` is not an int.

    Example:
        >>> from stoker.compat import tf
        >>> squares = tf.data.Dataset.range(1_000_000).map(lambda x: x * x)
        >>> tf.data.experimental.at(squares, 1000)
        1000000
    """
    position = arguments.integer("index", index)
    _check(dataset.node)
    length = dataset.cardinality()
    if position < 0 or 0 <= length <= position:
        raise _out_of_range(position, length)
    _fill_caches(dataset)
    # Epoch 0 in each call: a shuffle that draws anew for each epoch has a fixed order here.
    with dataset.skip(position).iterator(epoch=0) as iterator:
        for element in iterator:
            return element
    raise _out_of_range(position, length)


def _out_of_range(position: int, length: int) -> OutOfRangeError:
    bound = f"[0, {length})" if length >= 0 else "of the dataset"
    return OutOfRangeError(f"Index out of range {bound}:{position}")


def _check(root: Node) -> None:
    """Check that the elements can be reached by their positions.

    Raises:
        FailedPreconditionError: if there is no end, or an unknown number of rows.
        UnimplementedError: if elements have no fixed positions.
    """
    for node in number(root):
        if node.unrepeatable:
            raise UnimplementedError(
                f"Random access is not implemented for dataset `{node.kind}`: {node.unrepeatable}"
            )
    _check_length(root)


def _check_length(node: Node) -> None:
    cardinality = node.cardinality()
    if cardinality >= 0 or isinstance(node, Cache) or node.kind == "list_files":
        return
    if cardinality == INFINITE_CARDINALITY or node.kind in ("unbatch", "rebatch"):
        kind = "infinite" if cardinality == INFINITE_CARDINALITY else "unknown"
        raise FailedPreconditionError(
            f"Dataset of type `{node.kind}` has {kind} cardinality, which does not support random "
            "access. Put take() or cache() behind it"
        )
    if node.kind not in _KEEPS_POSITIONS:
        raise UnimplementedError(
            f"Random access is not implemented for dataset `{node.kind}`, whose number of elements "
            "is unknown. Put cache() behind it"
        )
    for each in node.inputs:
        if each.cardinality() == UNKNOWN_CARDINALITY:
            _check_length(each)


def _fill_caches(dataset: StokerDataset) -> None:
    """Read what a cache keeps, so that its input is computed once."""
    for node in number(dataset.node):
        if isinstance(node, Cache) and node.cardinality() != INFINITE_CARDINALITY:
            if is_filled(node):
                continue
            cached = dataset._derive(node)
            # An error keeps the cache from being filled here, and is raised at its position.
            with suppress(Exception), cached.iterator(epoch=0) as elements:
                for _ in elements:
                    pass
