"""The fluent API: functions applied to each element."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.iterator import T_co
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.node import AUTOTUNE
from stoker.elements.spec import Spec

if TYPE_CHECKING:
    import stoker

_U = TypeVar("_U")

# Not the number of cores: the order must not depend on the machine.
_CYCLE_LENGTH = 8


class Elementwise(Fluent[T_co]):
    """Methods that apply a function to each element."""

    def map(
        self,
        map_func: Callable[..., _U],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        element_spec: Spec | None = None,
    ) -> "stoker.Dataset[_U]":
        """Apply a function to each element.

        Results are not converted and come in the order of the input. An exception of the function
        occupies the position of its element: the exception is raised there, and reading may
        continue afterwards. As `tf.data.Dataset.map`.

        Args:
            map_func: called with the element, or with the members of a tuple.
            num_parallel_calls: ``None`` calls in the reading thread, a number on that many threads
                of the process's pool, `stoker.AUTOTUNE` on a measured number of threads.
            deterministic: accepted without effect: results always come in order.
            element_spec: of the results, if known; user code is never run to infer a spec.

        Raises:
            InvalidArgumentError: if `map_func` is not callable, `num_parallel_calls` is neither a
                positive int, None nor AUTOTUNE, or `element_spec` is not a spec.

        Example:
            >>> list(Dataset.range(3).map(lambda x: {"x": x}))
            [{'x': 0}, {'x': 1}, {'x': 2}]
        """
        size = arguments.size_or_autotune
        calls = arguments.optional(size, "num_parallel_calls", num_parallel_calls)
        # Checked and not used: results always come in order.
        arguments.optional(arguments.flag, "deterministic", deterministic)
        node = nodes.Map(
            input=self.node,
            function=arguments.function("map_func", map_func),
            num_parallel_calls=calls,
            spec=arguments.spec("element_spec", element_spec),
        )
        return self._append(node)

    def filter(self, predicate: Callable[..., Any]) -> Self:
        """Keep the elements for which the predicate is true.

        As `tf.data.Dataset.filter`.

        Args:
            predicate: called with the element, or with the members of a tuple.

        Raises:
            InvalidArgumentError: if `predicate` is not callable.

        Example:
            >>> list(Dataset.range(5).filter(lambda x: x > 2))
            [3, 4]
        """
        function = arguments.function("predicate", predicate)
        return self._append(nodes.Filter(input=self.node, function=function))

    def flat_map(
        self, map_func: "Callable[..., Fluent[_U]]", *, element_spec: Spec | None = None
    ) -> "stoker.Dataset[_U]":
        """Map each element to a dataset and yield the elements of these datasets in order.

        As `tf.data.Dataset.flat_map`.

        Args:
            map_func: called with the element, or with its members if it is a tuple; returns a
                Dataset.
            element_spec: of the results, if known.

        Raises:
            InvalidArgumentError: if `map_func` is not callable or `element_spec` is not a spec;
                when read, if the function does not return a Dataset.

        Example:
            >>> list(Dataset.range(4).flat_map(Dataset.range))
            [0, 0, 1, 0, 1, 2]
        """
        node = nodes.FlatMap(
            input=self.node,
            function=arguments.function("map_func", map_func),
            spec=arguments.spec("element_spec", element_spec),
        )
        return self._append(node)

    def interleave(
        self,
        map_func: "Callable[..., Fluent[_U]]",
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        element_spec: Spec | None = None,
    ) -> "stoker.Dataset[_U]":
        """Map each element to a dataset and yield from `cycle_length` of these datasets in turn.

        A turn is `block_length` elements, in the order of tf.data. A dataset that ends gives up
        the rest of its turn and is replaced by the next dataset when its turn comes again. An error
        counts like an element; an error of `map_func` itself counts as a dataset that contains
        only this error. As `tf.data.Dataset.interleave`.

        Args:
            map_func: called with the element, or with its members if it is a tuple; returns a
                Dataset.
            cycle_length: number of datasets read in turn; ``None`` or `stoker.AUTOTUNE`: 8, on any
                machine.
            block_length: elements of a dataset before the turn of the next; ``None``: 1.
            num_parallel_calls: ``None`` reads in the reading thread; a number or
                `stoker.AUTOTUNE` reads all datasets ahead on at most that number of threads.
            deterministic: False: with `num_parallel_calls`, elements come in any order, as soon as
                ready.
            element_spec: of the results, if known.

        Raises:
            InvalidArgumentError: if `map_func` is not callable, or a number is neither positive,
                None nor (but for `block_length`) AUTOTUNE; when read, if the function does not
                return a Dataset.

        Example:
            >>> twice = Dataset.range(1, 5).interleave(
            ...     lambda x: Dataset.range(x, x + 1).repeat(3), cycle_length=2, block_length=2
            ... )
            >>> list(twice)
            [1, 1, 2, 2, 1, 2, 3, 3, 4, 4, 3, 4]
        """
        size = arguments.size_or_autotune
        cycle = arguments.optional(size, "cycle_length", cycle_length)
        block = 1 if block_length is None else block_length
        node = nodes.Interleave(
            input=self.node,
            function=arguments.function("map_func", map_func),
            cycle_length=_CYCLE_LENGTH if cycle is None or cycle == AUTOTUNE else cycle,
            block_length=arguments.size("block_length", block),
            num_parallel_calls=arguments.optional(size, "num_parallel_calls", num_parallel_calls),
            deterministic=arguments.flag("deterministic", deterministic, default=True),
            spec=arguments.spec("element_spec", element_spec),
        )
        return self._append(node)

    def scan(
        self,
        initial_state: Any,
        scan_func: Callable[[Any, Any], tuple[Any, _U]],
        *,
        element_spec: Spec | None = None,
    ) -> "stoker.Dataset[_U]":
        """Apply a function to each element and a state that the function updates.

        An exception occupies the position of its element and leaves the state unchanged. As
        `tf.data.Dataset.scan`.

        Args:
            initial_state: the state at the start of every epoch.
            scan_func: called with the state and the element (a tuple is one argument); returns the
                new state and the result.
            element_spec: of the results, if known.

        Raises:
            InvalidArgumentError: if `scan_func` is not callable or `element_spec` is not a spec;
                when read, if the function does not return a pair.

        Example:
            >>> list(Dataset.range(1, 5).scan(0, lambda total, x: (total + x, total + x)))
            [1, 3, 6, 10]
        """
        node = nodes.Scan(
            input=self.node,
            initial_state=Pickled.of(initial_state),
            function=arguments.function("scan_func", scan_func),
            spec=arguments.spec("element_spec", element_spec),
        )
        return self._append(node)
