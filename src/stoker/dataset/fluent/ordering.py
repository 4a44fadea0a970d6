"""The fluent API: selection, repetition and order of elements."""

from collections.abc import Callable
from itertools import islice
from typing import Any, Self

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.iterator import T_co
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stoker.errors import InvalidArgumentError


class Ordering(Fluent[T_co]):
    """Methods that select and order elements without changes."""

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
    ) -> Self:
        """Shuffle elements by drawing from a buffer.

        As `tf.data.Dataset.shuffle`.

        Args:
            buffer_size: elements in the buffer, at least 1; the order is uniform if all fit.
                `stoker.UNKNOWN_CARDINALITY` buffers all elements, so that
                ``shuffle(dataset.cardinality())`` is uniform also if the cardinality is unknown.
            seed: seed of the draws; ``None``: the seed of the dataset (`Options.seed`).
            reshuffle_each_iteration: draw a new order in each epoch; ``None`` is True.

        Raises:
            InvalidArgumentError: if `buffer_size` is neither 1 or more nor UNKNOWN_CARDINALITY, or
                UNKNOWN_CARDINALITY for an infinite dataset, or `seed` is not an int of 64 bits.

        Example:
            >>> sorted(Dataset.range(5).shuffle(3, seed=1))
            [0, 1, 2, 3, 4]
        """
        name = "reshuffle_each_iteration"
        node = nodes.Shuffle(
            input=self.node,
            buffer_size=self._shuffle_buffer(buffer_size),
            seed=arguments.seed(seed),
            reshuffle_each_iteration=arguments.flag(name, reshuffle_each_iteration, default=True),
        )
        return self._append(node)

    def _shuffle_buffer(self, buffer_size: int) -> int:
        what = "an int of at least 1, or stoker.UNKNOWN_CARDINALITY for all elements"
        size = arguments.integer("buffer_size", buffer_size, minimum=UNKNOWN_CARDINALITY, what=what)
        # The buffer would grow until the memory is full.
        if size == UNKNOWN_CARDINALITY and self.node.cardinality() == INFINITE_CARDINALITY:
            raise InvalidArgumentError(
                "`buffer_size` is UNKNOWN_CARDINALITY, which buffers all elements, but the dataset "
                "is infinite; give a number of elements"
            )
        if size in (0, INFINITE_CARDINALITY):
            raise InvalidArgumentError(f"`buffer_size` must be {what}; got {size}")
        return size

    def repeat(self, count: int | None = None) -> Self:
        """Repeat the dataset.

        Each repetition is an epoch: a preceding shuffle draws anew. As `tf.data.Dataset.repeat`.

        Args:
            count: number of repetitions, 0 or more; ``None`` or a negative number repeats without
                end, unless an epoch is empty (directly after a shuffle, 1,000 in a row).

        Raises:
            InvalidArgumentError: if `count` is not an int of 64 bits.

        Example:
            >>> list(Dataset.range(2).repeat(3))
            [0, 1, 0, 1, 0, 1]
        """
        times = -1 if count is None else arguments.count_or_all("count", count, "endless")
        return self._append(nodes.Repeat(input=self.node, count=times))

    def take(self, count: int) -> Self:
        """Keep the first `count` elements.

        As `tf.data.Dataset.take`.

        Args:
            count: number of elements, 0 or more; negative for all. Elements that fail are counted.

        Raises:
            InvalidArgumentError: if `count` is not an int of 64 bits.

        Example:
            >>> list(Dataset.range(10).take(2))
            [0, 1]
        """
        taken = arguments.count_or_all("count", count, "all")
        return self._append(nodes.Take(input=self.node, count=taken))

    def skip(self, count: int) -> Self:
        """Skip the first `count` elements.

        Skipped elements are computed only if later elements depend on the computation. As
        `tf.data.Dataset.skip`.

        Args:
            count: number of elements, 0 or more; negative for all.

        Raises:
            InvalidArgumentError: if `count` is not an int of 64 bits.

        Example:
            >>> list(Dataset.range(5).skip(3))
            [3, 4]
        """
        skipped = arguments.count_or_all("count", count, "all")
        return self._append(nodes.Skip(input=self.node, count=skipped))

    def take_while(self, predicate: Callable[..., Any]) -> Self:
        """Keep the elements before the first for which the predicate is false.

        As `tf.data.Dataset.take_while`.

        Args:
            predicate: called with the element, or with the members of a tuple; not called again
                after returning false.

        Raises:
            InvalidArgumentError: if `predicate` is not callable.

        Example:
            >>> list(Dataset.range(10).take_while(lambda x: x < 3))
            [0, 1, 2]
        """
        function = arguments.function("predicate", predicate)
        return self._append(nodes.TakeWhile(input=self.node, function=function))

    def unique(self) -> Self:
        """Drop elements that equal an earlier element.

        Every distinct element is kept in memory for the epoch: numbers and short text unchanged,
        longer values as a digest of 32 bytes. Values of different dtype or shape differ, and
        floats are compared by their bytes, so that NaN equals NaN. As `tf.data.Dataset.unique`,
        but elements may be nested.

        Example:
            >>> list(Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique().map(int))
            [1, 37, 2]
        """
        return self._append(nodes.Unique(input=self.node))

    def get_single_element(self) -> T_co:
        """Read and return the only element of the dataset.

        As `tf.data.Dataset.get_single_element`.

        Raises:
            InvalidArgumentError: if the dataset has no element or several elements.

        Example:
            >>> Dataset.range(5).batch(5).get_single_element()
            array([0, 1, 2, 3, 4])
        """
        with self.iterator() as iterator:
            # A second element shows that there are too many, without reading all elements.
            elements = list(islice(iterator, 2))
        if len(elements) == 1:
            return elements[0]
        what = "was empty" if not elements else "had more than one element"
        raise InvalidArgumentError(
            f"Dataset {what}; get_single_element needs exactly one element, such as the result "
            "of batch(n) or take(1)"
        )
