"""The fluent API: consecutive elements as one, and back."""

from typing import Self

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.node import call_site


class Batching(Fluent):
    """Methods that put elements together or take them apart."""

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Self:
        """Runs of consecutive elements, stacked leaf by leaf; as tf.data.Dataset.batch.

        Python ints become int64, floats float64, bools bool; text becomes an object array.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether to drop a last batch with fewer.

        Raises:
            InvalidArgumentError: an argument is none of these; when read, if the elements of a
                batch differ in structure, shape or dtype.

        Example:
            >>> list(Dataset.range(5).batch(2))
            [array([0, 1]), array([2, 3]), array([4])]
        """
        return self._derive(
            nodes.Batch(
                input=self.node,
                batch_size=arguments.size("batch_size", batch_size),
                drop_remainder=arguments.flag("drop_remainder", drop_remainder),
                site=call_site(),
            )
        )
