"""from_generator: the elements of a user's iterable."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.random import with_globals_seeded
from stoker.dataset.streams.calls.task_calls import recorded_unplaced
from stoker.dataset.streams.failures import raise_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node, declared_spec
from stoker.dataset.tree.splits import Unsplittable
from stoker.elements.spec import Spec


class Generator(Node, frozen=True, eq=False, kw_only=True):
    """Yields the elements of ``generator(*args)``, which is called once per epoch."""

    kind: ClassVar[str] = "from_generator"
    function: Pickled
    args: Pickled
    spec: Pickled | None = None

    def element_spec(self) -> Spec:
        return declared_spec(self.spec)

    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def splits(self) -> Unsplittable:
        return Unsplittable("what a generator yields is known only by running it")

    def open(self, context: Context) -> Stream:
        if context.calls is None and not context.seed_globals:
            return _GeneratorStream(self)
        return _TaskStream(self, context)


class _GeneratorStream(Stream):
    """Runs the generator; an error occupies one position and ends the stream."""

    def __init__(self, node: Generator) -> None:
        self._node = node
        self._iterator: Iterator[Any] | None = None
        self._index = 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        try:
            if self._iterator is None:
                self._iterator = iter(())  # if the call raises, the error is the only position
                self._iterator = iter(self._node.function.value(*self._node.args.value))
            for element in self._iterator:
                self._index += 1
                return [element]
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            self._index += 1
            raise_failure(error, self._node.origin._replace(index=self._index - 1))
        self._iterator = iter(())
        return []

    def close(self) -> None:
        iterator, self._iterator = self._iterator, iter(())
        close = getattr(iterator, "close", None)
        if close is not None:
            with suppress(ValueError):  # a generator that runs in another thread cannot be closed
                close()


class _TaskStream(_GeneratorStream):
    """Records that the generator runs, and seeds the global generators for each element."""

    def __init__(self, node: Generator, context: Context) -> None:
        super().__init__(node)
        self._calls = context.calls
        self._next_chunk: Callable[..., list[Any]] = with_globals_seeded(
            context, node, super().next_chunk
        )

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        with recorded_unplaced(self._calls):
            return self._next_chunk(max_elements, max_bytes, lazy)
