"""The fluent API: windows, groups and reductions."""

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from stoker.dataset import arguments, nodes
from stoker.dataset.collation.padding import check_padding
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.iterator import T_co
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.call_site import call_site
from stoker.elements.spec import Spec
from stoker.errors import InvalidArgumentError

if TYPE_CHECKING:
    import stoker

_U = TypeVar("_U")


class Grouping(Fluent[T_co]):
    """Methods that group elements into datasets or reduce them to a value."""

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> "stoker.Dataset[Any]":
        """Group runs of elements into datasets.

        If elements are tuples, dicts, namedtuples or dataclasses, a window has the same structure
        with a dataset per member. If an element of a window fails, the window fails. Elements that
        belong to no window are not computed. As `tf.data.Dataset.window`.

        Args:
            size: elements per window, at least 1; the last windows may have fewer.
            shift: distance between the first elements of two windows, at least 1; ``None``: `size`.
            stride: distance between two elements of a window, at least 1.
            drop_remainder: drop windows with fewer elements.

        Raises:
            InvalidArgumentError: if a number is less than 1; when read, if the elements of a
                window differ in structure.

        Example:
            >>> [list(window) for window in Dataset.range(7).window(3, shift=2)]
            [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6]]
            >>> pairs = Dataset.from_tensor_slices({"x": [1, 2, 3], "y": ["a", "b", "c"]})
            >>> [list(window["y"]) for window in pairs.window(2)]
            [['a', 'b'], ['c']]
        """
        size = arguments.size("size", size)
        node = nodes.Window(
            input=self.node,
            size=size,
            shift=size if shift is None else arguments.size("shift", shift),
            stride=arguments.size("stride", stride),
            drop_remainder=arguments.flag("drop_remainder", drop_remainder),
        )
        return self._append(node)

    def group_by_window(
        self,
        key_func: Callable[..., int],
        reduce_func: Callable[[int, Any], Fluent[_U]],
        window_size: int | None = None,
        window_size_func: Callable[[int], int] | None = None,
        *,
        element_spec: Spec | None = None,
    ) -> "stoker.Dataset[_U]":
        """Group elements by key and map each full group to a dataset.

        When a group is full, the elements of its dataset follow. At the end of the input, groups
        that are not full follow in the order of their keys. An error of `key_func` occupies the
        position of its element, an error of `reduce_func` the position of its group. As
        `tf.data.Dataset.group_by_window`.

        Args:
            key_func: called with the element, or with the members of a tuple; returns an int.
            reduce_func: called with the key and the group, a Dataset; returns a Dataset.
            window_size: elements of a full group, at least 1.
            window_size_func: returns the window size for a key; give one of the two.
            element_spec: of the results, if known.

        Raises:
            InvalidArgumentError: if `window_size` is less than 1, or both or neither of
                `window_size` and `window_size_func` are given; when read, if a function returns
                another type.

        Example:
            >>> list(
            ...     Dataset.range(7).group_by_window(
            ...         lambda x: x % 2, lambda key, group: group.batch(3), window_size=3
            ...     )
            ... )
            [array([0, 2, 4]), array([1, 3, 5]), array([6])]
        """
        if (window_size is None) == (window_size_func is None):
            raise InvalidArgumentError(
                "Either the `window_size` argument or the `window_size_func` argument must be "
                f"specified, and not both; got {window_size!r} and {window_size_func!r}"
            )
        node = nodes.GroupByWindow(
            input=self.node,
            key_function=arguments.function("key_func", key_func),
            reduce_function=arguments.function("reduce_func", reduce_func),
            window_size=arguments.optional(arguments.size, "window_size", window_size),
            window_size_function=arguments.optional(
                arguments.function, "window_size_func", window_size_func
            ),
            spec=arguments.spec("element_spec", element_spec),
        )
        return self._append(node)

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., int],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        *,
        element_spec: Spec | None = None,
    ) -> "stoker.Dataset[Any]":
        """Batch elements of similar length together, with padding.

        As `tf.data.Dataset.bucket_by_sequence_length`.

        Args:
            element_length_func: called with the element, or with the members of a tuple; returns
                the element's length.
            bucket_boundaries: ascending lengths; a bucket contains the lengths from a boundary
                up to, but not including, the next.
            bucket_batch_sizes: the batch size of each of the ``len(bucket_boundaries) + 1``
                buckets.
            padded_shapes: as for `padded_batch`.
            padding_values: as for `padded_batch`.
            pad_to_bucket_boundary: pad dimensions of unknown size to the upper boundary of the
                bucket minus 1, not to the longest of the batch. An element as long as the last
                boundary is an error. A leaf without a spec varies in its first dimension.
            no_padding: stack elements as `batch` does, without padding.
            drop_remainder: drop batches with fewer elements.
            element_spec: of the batches, if known.

        Raises:
            InvalidArgumentError: if `bucket_boundaries` do not ascend, a batch size is less than
                1 or a batch size is missing, or the padding does not match the elements.

        Example:
            >>> tokens = Dataset.from_tensor_slices([1, 5, 2, 6]).map(lambda n: [7] * n)
            >>> for batch in tokens.bucket_by_sequence_length(len, [4], [2, 2]):
            ...     print(batch)
            [[7 0]
             [7 7]]
            [[7 7 7 7 7 0]
             [7 7 7 7 7 7]]
        """
        boundaries = arguments.integers(
            "bucket_boundaries", bucket_boundaries, what="an ascending list of ints"
        )
        sizes = arguments.integers(
            "bucket_batch_sizes", bucket_batch_sizes, minimum=1, what="a list of ints of at least 1"
        )
        if len(sizes) != len(boundaries) + 1:
            raise InvalidArgumentError(
                "`len(bucket_batch_sizes)` must equal `len(bucket_boundaries) + 1`; got "
                f"{len(sizes)} sizes and {len(boundaries)} boundaries"
            )
        if any(a >= b for a, b in itertools.pairwise(boundaries)):
            raise InvalidArgumentError(f"`bucket_boundaries` must ascend; got {boundaries}")
        check_padding(padded_shapes, padding_values)
        # Imported when used, as nodes are. (docs/decisions/085)
        from stoker.dataset.fluent.buckets import Buckets

        buckets = Buckets(
            arguments.function("element_length_func", element_length_func).value,
            boundaries,
            sizes,
            padded_shapes,
            padding_values,
            to_boundary=arguments.flag("pad_to_bucket_boundary", pad_to_bucket_boundary),
            padded=not arguments.flag("no_padding", no_padding),
            drop_remainder=arguments.flag("drop_remainder", drop_remainder),
            site=call_site(),
        )
        node = nodes.GroupByWindow(
            input=self.node,
            key_function=Pickled.of(buckets.key),
            reduce_function=Pickled.of(buckets.batches),
            window_size_function=Pickled.of(buckets.size),
            spec=arguments.spec("element_spec", element_spec),
        )
        return self._append(node)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], _U]) -> _U:
        """Read the dataset and reduce its elements to a single value.

        As `tf.data.Dataset.reduce`.

        Args:
            initial_state: the first state; the result if there are no elements.
            reduce_func: called with the state and the element (a tuple is one argument); returns
                the new state.

        Raises:
            InvalidArgumentError: if `reduce_func` is not callable.
            Exception: the first error of an element or of the function.

        Example:
            >>> Dataset.range(5).reduce(0, lambda total, x: total + x)
            10
        """
        arguments.function("reduce_func", reduce_func)
        state = initial_state
        with self.iterator() as iterator:
            for element in iterator:
                state = reduce_func(state, element)
        return state
