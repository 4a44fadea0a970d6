"""The fluent API: what happens to each element by itself."""

from collections.abc import Callable
from typing import Any, Self

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.pickled import Pickled
from stoker.dataset.tree.call_site import call_site
from stoker.dataset.tree.node import AUTOTUNE
from stoker.elements.spec import Spec

# Not the number of cores: the order must not depend on the machine.
_CYCLE_LENGTH = 8


class Elementwise(Fluent):
    """Methods that look at one element at a time."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        element_spec: Spec | None = None,
    ) -> Self:
        """Each element becomes what the function returns; as tf.data.Dataset.map.

        Results are not converted and come in the order of the input. A function that raises takes
        its element's position: the error is raised there and reading may continue behind it.

        Args:
            map_func: called with the element, or with its members if it is a tuple.
            num_parallel_calls: ``None`` calls in the reading thread; a number on that many threads
                of the process's pool, `stoker.AUTOTUNE` on as many as pay.
            deterministic: accepted without effect: results come in order, as False allows too.
            element_spec: of the results, if known; user code is never run to guess it.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(3).map(lambda x: {"x": x}))
            [{'x': 0}, {'x': 1}, {'x': 2}]
        """
        calls = num_parallel_calls
        if calls is not None:
            calls = arguments.size_or_autotune("num_parallel_calls", calls)
        if deterministic is not None:
            arguments.flag("deterministic", deterministic)
        return self._derive(
            nodes.Map(
                input=self.node,
                function=arguments.function("map_func", map_func),
                num_parallel_calls=calls,
                spec=arguments.spec("element_spec", element_spec),
                site=call_site(),
            )
        )

    def filter(self, predicate: Callable[..., Any]) -> Self:
        """The elements for which the predicate is true; as tf.data.Dataset.filter.

        Args:
            predicate: called with the element, or with its members if it is a tuple.

        Raises:
            InvalidArgumentError: `predicate` cannot be called.

        Example:
            >>> list(Dataset.range(5).filter(lambda x: x > 2))
            [3, 4]
        """
        function = arguments.function("predicate", predicate)
        return self._derive(nodes.Filter(input=self.node, function=function, site=call_site()))

    def flat_map(
        self, map_func: Callable[..., "Fluent"], *, element_spec: Spec | None = None
    ) -> Self:
        """The elements of a dataset made for each element; as tf.data.Dataset.flat_map.

        Args:
            map_func: called with the element, or with its members if it is a tuple; returns a
                Dataset.
            element_spec: of the results, if known.

        Raises:
            InvalidArgumentError: an argument is none of these; when read, if the function
                returns something else.

        Example:
            >>> list(Dataset.range(4).flat_map(Dataset.range))
            [0, 0, 1, 0, 1, 2]
        """
        return self._derive(
            nodes.FlatMap(
                input=self.node,
                function=arguments.function("map_func", map_func),
                spec=arguments.spec("element_spec", element_spec),
                site=call_site(),
            )
        )

    def interleave(
        self,
        map_func: Callable[..., "Fluent"],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        element_spec: Spec | None = None,
    ) -> Self:
        """The elements of several datasets in turn, one made for each element of this one.

        As tf.data.Dataset.interleave, in its order: `block_length` elements of each of
        `cycle_length` datasets. One that ends gives up the rest of its turn and is replaced by the
        next when its turn comes again. An error counts in its turn like an element; one of
        `map_func` itself is that of a dataset with nothing else in it.

        Args:
            map_func: called with the element, or with its members if it is a tuple; returns a
                Dataset.
            cycle_length: how many datasets are read in turn; ``None`` or `stoker.AUTOTUNE`: 8, on
                any machine.
            block_length: elements of one before the next one's turn; ``None``: 1.
            num_parallel_calls: ``None`` reads in the reading thread; a number or
                `stoker.AUTOTUNE` reads all of them ahead, at most so many at once, on threads.
            deterministic: False: with `num_parallel_calls`, whatever is ready first, in any order.
            element_spec: of the results, if known.

        Raises:
            InvalidArgumentError: an argument is none of these; when read, if the function
                returns something else.

        Example:
            >>> twice = Dataset.range(1, 5).interleave(
            ...     lambda x: Dataset.range(x, x + 1).repeat(3), cycle_length=2, block_length=2
            ... )
            >>> list(twice)
            [1, 1, 2, 2, 1, 2, 3, 3, 4, 4, 3, 4]
        """
        calls = num_parallel_calls
        if calls is not None:
            calls = arguments.size_or_autotune("num_parallel_calls", calls)
        cycle = cycle_length
        if cycle is not None:
            cycle = arguments.size_or_autotune("cycle_length", cycle)
        block = 1 if block_length is None else block_length
        ordered = True if deterministic is None else deterministic
        return self._derive(
            nodes.Interleave(
                input=self.node,
                function=arguments.function("map_func", map_func),
                cycle_length=_CYCLE_LENGTH if cycle in (None, AUTOTUNE) else cycle,
                block_length=arguments.size("block_length", block),
                num_parallel_calls=calls,
                deterministic=arguments.flag("deterministic", ordered),
                spec=arguments.spec("element_spec", element_spec),
                site=call_site(),
            )
        )

    def scan(
        self,
        initial_state: Any,
        scan_func: Callable[[Any, Any], tuple[Any, Any]],
        *,
        element_spec: Spec | None = None,
    ) -> Self:
        """A function of each element and of a state that it hands on; as tf.data.Dataset.scan.

        A call that raises takes its element's position and leaves the state as it was.

        Args:
            initial_state: of every pass.
            scan_func: called with the state and the element (a tuple is one argument); returns the
                new state and what the element becomes.
            element_spec: of the results, if known.

        Raises:
            InvalidArgumentError: an argument is none of these; when read, if the function
                returns something else.

        Example:
            >>> list(Dataset.range(1, 5).scan(0, lambda total, x: (total + x, total + x)))
            [1, 3, 6, 10]
        """
        return self._derive(
            nodes.Scan(
                input=self.node,
                initial_state=Pickled.of(initial_state),
                function=arguments.function("scan_func", scan_func),
                spec=arguments.spec("element_spec", element_spec),
                site=call_site(),
            )
        )
