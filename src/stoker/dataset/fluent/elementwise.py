"""The fluent API: what happens to each element by itself."""

from collections.abc import Callable
from typing import Any, Self

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.node import call_site
from stoker.dataset.spec import Spec


class Elementwise(Fluent):
    """Methods that look at one element at a time."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        *,
        element_spec: Spec | None = None,
    ) -> Self:
        """Each element becomes what the function returns; as tf.data.Dataset.map.

        Results are not converted and come in the order of the input. A function that raises takes
        its element's position: the error is raised there and reading may continue behind it.

        Args:
            map_func: called with the element, or with its members if it is a tuple.
            num_parallel_calls: ``None`` calls in the reading thread; a number or
                `stoker.AUTOTUNE` on that many threads of the process's pool.
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
