"""The fluent API: what is computed ahead or kept."""

from typing import Self

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.node import call_site


class Keeping(Fluent):
    """Methods that change when elements are computed, not what they are."""

    def cache(self) -> Self:
        """Keeps the elements in memory from the first whole pass on; as tf.data.Dataset.cache.

        Later passes in this process read what was kept, as read-only arrays. A pass that was left
        early keeps nothing.

        Example:
            >>> dataset = Dataset.range(3).map(lambda x: x + 1).cache()
            >>> list(dataset), list(dataset)
            ([1, 2, 3], [1, 2, 3])
        """
        return self._derive(nodes.Cache(input=self.node, site=call_site()))

    def prefetch(self, buffer_size: int) -> Self:
        """Computes ahead of the reader on a thread; as tf.data.Dataset.prefetch.

        Args:
            buffer_size: the most elements to hold, or `stoker.AUTOTUNE`.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(3).prefetch(2))
            [0, 1, 2]
        """
        size = arguments.size_or_autotune("buffer_size", buffer_size)
        return self._derive(nodes.Prefetch(input=self.node, buffer_size=size, site=call_site()))
