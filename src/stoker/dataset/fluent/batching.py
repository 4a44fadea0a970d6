"""The fluent API: consecutive elements as one, and back."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.pickled import Pickled
from stoker.dataset.tree.call_site import call_site
from stoker.dataset.tree.node import Node
from stoker.errors import InvalidArgumentError


class Batching(Fluent):
    """Methods that put elements together or take them apart."""

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Self:
        """Runs of consecutive elements, stacked leaf by leaf; as tf.data.Dataset.batch.

        Python ints become int64, floats float64, bools bool; text becomes an object array.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether to drop a last batch with fewer.
            num_parallel_calls: taken for the sake of pipelines written for tf.data and of no
                effect: stacking is copying, and behind a map with `num_parallel_calls` its threads
                write their results straight into the batch.
            deterministic: the same; batches always come in order.

        Raises:
            InvalidArgumentError: an argument is none of these, or the elements are RaggedArrays;
                when read, if the elements of a batch differ in structure, shape or dtype.

        Example:
            >>> list(Dataset.range(5).batch(2))
            [array([0, 1]), array([2, 3]), array([4])]
        """
        if num_parallel_calls is not None:
            arguments.size_or_autotune("num_parallel_calls", num_parallel_calls)
        if deterministic is not None:
            arguments.flag("deterministic", deterministic)
        return self._checked(
            nodes.Batch(
                input=self.node,
                batch_size=arguments.size("batch_size", batch_size),
                drop_remainder=arguments.flag("drop_remainder", drop_remainder),
                site=call_site(),
            )
        )

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> Self:
        """Runs of consecutive elements, padded to one shape; as tf.data.Dataset.padded_batch.

        A list of numbers or of text, such as a function's token list, is a vector here, not
        structure. Numbers are padded with 0, bools with False, text with ``""`` (``b""`` where the
        batch holds bytes).

        Args:
            batch_size: elements per batch.
            padded_shapes: a shape for each leaf, nested as the elements are: a length for each
                dimension, None or -1 for the longest in the batch. None, at any level: all longest.
            padding_values: a value for each leaf, nested likewise, of the leaf's dtype; a value at
                any level is for all leaves below. None: the default.
            drop_remainder: whether to drop a last batch with fewer.

        Raises:
            InvalidArgumentError: an argument is none of these or does not fit the element_spec;
                when read, if the elements of a batch differ in structure, dtype or number of
                dimensions, or one is larger than its padded shape.

        Example:
            >>> tokens = Dataset.from_tensor_slices([3, 1, 2]).map(lambda n: [7] * n)
            >>> list(tokens.padded_batch(2))
            [array([[7, 7, 7],
                   [7, 0, 0]]), array([[7, 7]])]
            >>> list(tokens.padded_batch(3, padded_shapes=[4], padding_values=-1))
            [array([[ 7,  7,  7, -1],
                   [ 7, -1, -1, -1],
                   [ 7,  7, -1, -1]])]
        """
        from stoker.dataset.collation.padding import check_padding

        check_padding(padded_shapes, padding_values)
        return self._checked(
            nodes.PaddedBatch(
                input=self.node,
                batch_size=arguments.size("batch_size", batch_size),
                drop_remainder=arguments.flag("drop_remainder", drop_remainder),
                padding=Pickled.of((padded_shapes, padding_values)),
                site=call_site(),
            )
        )

    def ragged_batch(self, batch_size: int, drop_remainder: bool = False) -> Self:
        """Runs of consecutive elements whose first dimension differs; as tf.data's ragged_batch.

        Leaves of one dimension or more become a RaggedArray, except where the element_spec says
        that they all have one shape; those, and scalars, are stacked as by `batch`. A list of
        numbers or of text is a vector here.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether to drop a last batch with fewer.

        Raises:
            InvalidArgumentError: an argument is none of these, or the elements are RaggedArrays
                already; when read, if the elements of a batch differ in structure, dtype, or in a
                dimension behind the first.

        Example:
            >>> tokens = Dataset.from_tensor_slices([3, 1, 2]).map(lambda n: [7] * n)
            >>> [batch.to_list() for batch in tokens.ragged_batch(2)]
            [[[7, 7, 7], [7]], [[7, 7]]]
        """
        return self._checked(
            nodes.RaggedBatch(
                input=self.node,
                batch_size=arguments.size("batch_size", batch_size),
                drop_remainder=arguments.flag("drop_remainder", drop_remainder),
                site=call_site(),
            )
        )

    def unbatch(self) -> Self:
        """The rows of each element, one by one; as tf.data.Dataset.unbatch.

        All leaves are cut along their first dimension, in which they must agree. Rows are views of
        the batch, as writable as it is; rows of vectors are NumPy scalars or text, and those of a
        list of numbers or text are its items.

        Raises:
            InvalidArgumentError: by the element_spec a leaf has no first dimension or two differ in
                it; when read, the same of an element.

        Example:
            >>> list(Dataset.range(4).batch(3).map(lambda x: {"x": x * x}).unbatch())
            [{'x': np.int64(0)}, {'x': np.int64(1)}, {'x': np.int64(4)}, {'x': np.int64(9)}]
        """
        return self._checked(nodes.Unbatch(input=self.node, site=call_site()))

    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False) -> Self:
        """Batches of another size; as tf.data.Dataset.rebatch.

        The result is that of ``unbatch().batch(batch_size, drop_remainder)``, made by cutting and
        joining arrays and therefore far faster; rows of a RaggedArray stay a RaggedArray. A batch
        that lies within one element is a view of it.

        Args:
            batch_size: elements per batch, or a list of sizes that is cycled through.
            drop_remainder: whether to drop a last batch with fewer.

        Raises:
            InvalidArgumentError: an argument is none of these, or as `unbatch` and `batch`.

        Example:
            >>> list(Dataset.range(6).batch(4).rebatch(3))
            [array([0, 1, 2]), array([3, 4, 5])]
            >>> list(Dataset.range(6).batch(6).rebatch([1, 3]))
            [array([0]), array([1, 2, 3]), array([4]), array([5])]
        """
        sizes = batch_size if isinstance(batch_size, Sequence | np.ndarray) else [batch_size]
        if not len(sizes):
            raise InvalidArgumentError("`batch_size` must be a size or several; got none")
        return self._checked(
            nodes.Rebatch(
                input=self.node,
                sizes=tuple(arguments.size("batch_size", size) for size in sizes),
                drop_remainder=arguments.flag("drop_remainder", drop_remainder),
                site=call_site(),
            )
        )

    def _checked(self, node: Node) -> Self:
        node.element_spec()  # what does not fit together is found when the dataset is built
        return self._derive(node)
