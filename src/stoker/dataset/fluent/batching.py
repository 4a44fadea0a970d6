"""The fluent API: batching of consecutive elements, and its inverse."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.iterator import T_co
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.node import Node
from stoker.errors import InvalidArgumentError

if TYPE_CHECKING:
    import stoker


class Batching(Fluent[T_co]):
    """Methods that combine consecutive elements into batches or split batches."""

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> "stoker.Dataset[Any]":
        """Stack runs of consecutive elements, leaf by leaf.

        Python ints become int64, floats float64, bools bool; text becomes an object array. As
        `tf.data.Dataset.batch`.

        Args:
            batch_size: elements per batch, at least 1.
            drop_remainder: drop a last batch with fewer elements.
            num_parallel_calls: accepted for pipelines written for tf.data, without effect:
                stacking is copying, and after a map with `num_parallel_calls` the threads of the
                map write their results directly into the batch.
            deterministic: accepted without effect; batches always come in order.

        Raises:
            InvalidArgumentError: if `batch_size` is less than 1, or another argument has the wrong
                type; when read, if the elements of a batch differ in structure, shape or dtype.

        Example:
            >>> list(Dataset.range(5).batch(2))
            [array([0, 1]), array([2, 3]), array([4])]
        """
        size = arguments.size_or_autotune
        arguments.optional(size, "num_parallel_calls", num_parallel_calls)
        # Checked and not used: batches always come in order.
        arguments.optional(arguments.flag, "deterministic", deterministic)
        node = nodes.Batch(
            input=self.node,
            batch_size=arguments.size("batch_size", batch_size),
            drop_remainder=arguments.flag("drop_remainder", drop_remainder),
        )
        return self._checked(node)

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> "stoker.Dataset[Any]":
        """Pad runs of consecutive elements to a common shape and stack each run.

        A list of numbers or of text, such as a list of tokens that a function returned, is a
        vector here, not structure. Numbers are padded with 0, bools with False, text with ``""``
        (``b""`` if the batch contains bytes). As `tf.data.Dataset.padded_batch`.

        Args:
            batch_size: elements per batch, at least 1.
            padded_shapes: a shape for each leaf, with the structure of the elements: a length per
                dimension, or None or -1 for the longest in the batch. None at any level selects
                the longest for all leaves below.
            padding_values: a value for each leaf, with the same structure and the dtype of the
                leaf; a value at any level applies to all leaves below. None: the default.
            drop_remainder: drop a last batch with fewer elements.

        Raises:
            InvalidArgumentError: if `batch_size` is less than 1, or `padded_shapes` or
                `padding_values` do not match the element_spec; when read, if the elements of a
                batch differ in structure, dtype or number of dimensions, or an element is larger
                than its padded shape.

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
        node = nodes.PaddedBatch(
            input=self.node,
            batch_size=arguments.size("batch_size", batch_size),
            drop_remainder=arguments.flag("drop_remainder", drop_remainder),
            padding=Pickled.of((padded_shapes, padding_values)),
        )
        return self._checked(node)

    def ragged_batch(self, batch_size: int, drop_remainder: bool = False) -> "stoker.Dataset[Any]":
        """Combine runs of consecutive elements that differ in their lengths.

        Leaves of one dimension or more become a RaggedArray, unless the element_spec declares a
        fixed shape; leaves of fixed shape, and scalars, are stacked as by `batch`. The dimensions
        up to the last of unknown length are ragged; if the element_spec is unknown, the dimensions
        up to the last in which the elements of the batch differ. A list of numbers or of text is a
        vector here. As `tf.data.Dataset.ragged_batch`.

        Args:
            batch_size: elements per batch, at least 1.
            drop_remainder: drop a last batch with fewer elements.

        Raises:
            InvalidArgumentError: if `batch_size` is less than 1; when read, if the elements of a
                batch differ in structure, dtype, number of dimensions, or in lengths that the
                element_spec declares.

        Example:
            >>> tokens = Dataset.from_tensor_slices([3, 1, 2]).map(lambda n: [7] * n)
            >>> [batch.to_list() for batch in tokens.ragged_batch(2)]
            [[[7, 7, 7], [7]], [[7, 7]]]
        """
        node = nodes.RaggedBatch(
            input=self.node,
            batch_size=arguments.size("batch_size", batch_size),
            drop_remainder=arguments.flag("drop_remainder", drop_remainder),
        )
        return self._checked(node)

    def unbatch(self) -> "stoker.Dataset[Any]":
        """Split each element into its rows.

        All leaves are cut along their first dimension, which must be equal. Rows are views of the
        batch, writable if the batch is writable; rows of vectors are NumPy scalars or text, and
        rows of a list of numbers or text are its items. As `tf.data.Dataset.unbatch`.

        Raises:
            InvalidArgumentError: if, by the element_spec, a leaf has no first dimension or two
                leaves differ in the first dimension; when read, if this holds for an element.

        Example:
            >>> list(Dataset.range(4).batch(3).map(lambda x: {"x": x * x}).unbatch())
            [{'x': np.int64(0)}, {'x': np.int64(1)}, {'x': np.int64(4)}, {'x': np.int64(9)}]
        """
        return self._checked(nodes.Unbatch(input=self.node))

    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False) -> Self:
        """Regroup batches to another size.

        The result is that of ``unbatch().batch(batch_size, drop_remainder)``, computed by cutting
        and joining arrays and therefore much faster; rows of a RaggedArray stay a RaggedArray. A
        batch that lies within an element is a view of the element. As `tf.data.Dataset.rebatch`.

        Args:
            batch_size: elements per batch, at least 1, or a list of sizes, used in turn. A size of
                0 in a list yields an empty batch; at least one size must be more than 0.
            drop_remainder: drop a last batch with fewer elements.

        Raises:
            InvalidArgumentError: if a size is negative or none is more than 0, and where `unbatch`
                and `batch` raise this error.

        Example:
            >>> list(Dataset.range(6).batch(4).rebatch(3))
            [array([0, 1, 2]), array([3, 4, 5])]
            >>> list(Dataset.range(6).batch(6).rebatch([1, 3]))
            [array([0]), array([1, 2, 3]), array([4]), array([5])]
        """
        what = "an int of at least 1, or a list of ints of 0 or more of which one is not 0"
        # An array of sizes is accepted, as tf.data accepts a tensor.
        several = isinstance(batch_size, Sequence) or np.ndim(batch_size) == 1
        given: Any = batch_size if several else [batch_size]
        sizes = arguments.integers("batch_size", given, minimum=0, what=what)
        if not any(sizes):
            raise InvalidArgumentError(f"`batch_size` must be {what}; got {batch_size!r}")
        node = nodes.Rebatch(
            input=self.node,
            sizes=tuple(sizes),
            drop_remainder=arguments.flag("drop_remainder", drop_remainder),
        )
        return self._checked(node)

    def _checked(self, node: Node) -> Any:
        node.element_spec()  # raises for elements that cannot be batched
        return self._append(node)
