"""tf.data.experimental: transformations for `Dataset.apply`; most are methods now."""

from collections.abc import Callable
from typing import Any

from stoker.compat.tf.data.dataset import Dataset
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.dataset.nodes.assert_cardinality import AssertCardinality
from stoker.dataset.tree.call_site import call_site

Transformation = Callable[[StokerDataset], Dataset]


def _applying(method: str) -> Callable[..., Transformation]:
    """Return a function with the arguments of a method that returns a transformation."""

    def make(*args: Any, **kwargs: Any) -> Transformation:
        def transformation(dataset: StokerDataset) -> Dataset:
            result: Dataset = getattr(Dataset.of(dataset), method)(*args, **kwargs)
            return result

        return transformation

    make.__doc__ = f"For `Dataset.apply`: what `Dataset.{method}` does, with its arguments."
    return make


bucket_by_sequence_length = _applying("bucket_by_sequence_length")
dense_to_ragged_batch = _applying("ragged_batch")
enumerate_dataset = _applying("enumerate")
group_by_window = _applying("group_by_window")
ignore_errors = _applying("ignore_errors")
rejection_resample = _applying("rejection_resample")
scan = _applying("scan")
snapshot = _applying("snapshot")
take_while = _applying("take_while")
unbatch = _applying("unbatch")
unique = _applying("unique")


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: int,
    num_parallel_batches: int | None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> Transformation:
    """Return a map followed by a batch; as `tf.data.experimental.map_and_batch`.

    Args:
        map_func: as for `Dataset.map`.
        batch_size: as for `Dataset.batch`.
        num_parallel_batches: number of batches computed in parallel, if `num_parallel_calls` is
            not given.
        drop_remainder: as for `Dataset.batch`.
        num_parallel_calls: as for `Dataset.map`.
    """
    if num_parallel_calls is None and num_parallel_batches is not None:
        num_parallel_calls = num_parallel_batches * batch_size

    def transformation(dataset: StokerDataset) -> Dataset:
        mapped = Dataset.of(dataset).map(map_func, num_parallel_calls=num_parallel_calls)
        return Dataset.of(mapped.batch(batch_size, drop_remainder=drop_remainder))

    return transformation


def shuffle_and_repeat(
    buffer_size: int, count: int | None = None, seed: int | None = None
) -> Transformation:
    """Return a shuffle followed by a repeat; as `tf.data.experimental.shuffle_and_repeat`."""

    def transformation(dataset: StokerDataset) -> Dataset:
        return Dataset.of(dataset).shuffle(buffer_size, seed=seed).repeat(count)

    return transformation


def parallel_interleave(
    map_func: Callable[..., Any],
    cycle_length: int,
    block_length: int = 1,
    sloppy: bool = False,  # noqa: ARG001 - order is always deterministic
    buffer_output_elements: int | None = None,  # noqa: ARG001 - measured, not set, here
    prefetch_input_elements: int | None = None,  # noqa: ARG001
) -> Transformation:
    """Return an interleave that reads `cycle_length` datasets in parallel."""

    def transformation(dataset: StokerDataset) -> Dataset:
        return Dataset.of(
            Dataset.of(dataset).interleave(
                map_func,
                cycle_length=cycle_length,
                block_length=block_length,
                num_parallel_calls=cycle_length,
            )
        )

    return transformation


def assert_cardinality(expected_cardinality: int) -> Transformation:
    """Return a transformation that declares the cardinality.

    Reading raises FailedPreconditionError if there are fewer or more elements. As
    `tf.data.experimental.assert_cardinality`.

    Args:
        expected_cardinality: a count, or INFINITE_CARDINALITY.

    Raises:
        InvalidArgumentError: if the number is neither 0 or more nor INFINITE_CARDINALITY.

    Example:
        >>> from stoker.compat import tf
        >>> odd = tf.data.Dataset.range(10).filter(lambda x: x % 2)
        >>> len(odd.apply(tf.data.experimental.assert_cardinality(5)))
        5
    """
    expected = arguments.count("expected_cardinality", expected_cardinality, "endless")
    site = call_site()

    def transformation(dataset: StokerDataset) -> Dataset:
        node = AssertCardinality(input=dataset.node, expected=expected, site=site)
        return Dataset.of(dataset)._derive(node)

    return transformation
