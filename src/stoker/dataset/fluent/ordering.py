"""The fluent API: which elements come, how often and in what order."""

from collections.abc import Callable
from itertools import islice
from typing import Any, Self

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.tree.call_site import call_site
from stoker.errors import InvalidArgumentError


class Ordering(Fluent):
    """Methods that leave elements as they are and choose among them."""

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
    ) -> Self:
        """Elements in random order, drawn from a buffer; as tf.data.Dataset.shuffle.

        Args:
            buffer_size: elements in the buffer; the order is uniform if all fit.
            seed: of the draws; ``None``: the dataset's own (`Options.seed`).
            reshuffle_each_iteration: whether each pass has an order of its own; ``None`` is True.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> sorted(Dataset.range(5).shuffle(3, seed=1))
            [0, 1, 2, 3, 4]
        """
        reshuffle = True if reshuffle_each_iteration is None else reshuffle_each_iteration
        return self._derive(
            nodes.Shuffle(
                input=self.node,
                buffer_size=arguments.size("buffer_size", buffer_size),
                seed=arguments.seed(seed),
                reshuffle_each_iteration=arguments.flag("reshuffle_each_iteration", reshuffle),
                site=call_site(),
            )
        )

    def repeat(self, count: int | None = None) -> Self:
        """The dataset again and again; as tf.data.Dataset.repeat.

        Each time is a pass of its own: a shuffle before it draws anew.

        Args:
            count: how often; ``None`` or -1 without end, unless a pass is empty.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(2).repeat(3))
            [0, 1, 0, 1, 0, 1]
        """
        times = -1 if count is None else arguments.count("count", count, "endless")
        return self._derive(nodes.Repeat(input=self.node, count=times, site=call_site()))

    def take(self, count: int) -> Self:
        """The first elements; as tf.data.Dataset.take.

        Args:
            count: how many; -1 for all. An element whose function raised counts.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(10).take(2))
            [0, 1]
        """
        taken = arguments.count("count", count, "all")
        return self._derive(nodes.Take(input=self.node, count=taken, site=call_site()))

    def skip(self, count: int) -> Self:
        """All but the first elements; as tf.data.Dataset.skip.

        What is skipped is computed only where that is needed to know what follows.

        Args:
            count: how many to leave out; -1 for all.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(5).skip(3))
            [3, 4]
        """
        skipped = arguments.count("count", count, "all")
        return self._derive(nodes.Skip(input=self.node, count=skipped, site=call_site()))

    def take_while(self, predicate: Callable[..., Any]) -> Self:
        """The elements before the first the predicate does not accept; as tf.data's take_while.

        Args:
            predicate: called with the element, or with its members if it is a tuple; not called
                any more once it was false.

        Raises:
            InvalidArgumentError: `predicate` cannot be called.

        Example:
            >>> list(Dataset.range(10).take_while(lambda x: x < 3))
            [0, 1, 2]
        """
        function = arguments.function("predicate", predicate)
        return self._derive(nodes.TakeWhile(input=self.node, function=function, site=call_site()))

    def unique(self) -> Self:
        """The elements without those that equal one before; as tf.data.Dataset.unique.

        Every distinct element is remembered for the whole pass: numbers and short text as they
        are, longer values as 32 bytes. Values of different dtype or shape differ, and floats are
        compared by their bytes, so that NaN equals NaN. Unlike with tf.data elements may be
        nested.

        Example:
            >>> list(Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique().map(int))
            [1, 37, 2]
        """
        return self._derive(nodes.Unique(input=self.node, site=call_site()))

    def get_single_element(self) -> Any:
        """The only element of the dataset, read in a pass; as tf.data.Dataset.get_single_element.

        Raises:
            InvalidArgumentError: there is none, or more than one.

        Example:
            >>> Dataset.range(5).batch(5).get_single_element()
            array([0, 1, 2, 3, 4])
        """
        with self.iterator() as iterator:
            elements = list(islice(iterator, 2))
        if len(elements) == 1:
            return elements[0]
        what = "was empty" if not elements else "had more than one element"
        raise InvalidArgumentError(
            f"Dataset {what}; get_single_element reads a dataset of exactly one, such as "
            "batch(n) or take(1) gives"
        )
