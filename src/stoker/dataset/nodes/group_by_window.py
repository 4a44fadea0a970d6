"""group_by_window: groups elements by key and maps each group to a dataset."""

import operator
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from stoker.dataset.nodes.elements import Elements
from stoker.dataset.nodes.nested import NestedDatasets
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.random import Calls, keyed, stream_calls
from stoker.dataset.streams.failures import raise_failure
from stoker.dataset.streams.sequence import SequenceStream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, OneInput, declared_spec
from stoker.dataset.unpacking import apply
from stoker.elements.frozen import frozen
from stoker.elements.spec import Spec, UnknownSpec
from stoker.errors import InvalidArgumentError, InvalidTypeError


class GroupByWindow(OneInput, frozen=True, eq=False, kw_only=True):
    """Groups elements by key and yields the elements of the dataset of each full group.

    Attributes:
        key_function: returns the key of an element, an int.
        reduce_function: called with a key and the group, a dataset; returns a dataset.
        window_size: elements of a full group; None if `window_size_function` is given.
        window_size_function: called once for each key.
        spec: the element_spec the user declared.
    """

    kind: ClassVar[str] = "group_by_window"
    keeps_endless: ClassVar[bool] = True
    key_function: Pickled
    reduce_function: Pickled
    window_size: int | None = None
    window_size_function: Pickled | None = None
    spec: Pickled | None = None

    def element_spec(self) -> Spec:
        return declared_spec(self.spec)

    def open(self, context: Context) -> Stream:
        return _GroupStream(context, self, context.open(self.input))


class _GroupStream(SequenceStream):
    """Reads elements until a group is full, then the dataset of that group to its end.

    At the end of the input, the groups that are not full follow in the order of their keys.
    """

    def __init__(self, context: Context, node: GroupByWindow, stream: Stream) -> None:
        super().__init__()
        self._input = stream
        self._node = node
        self._make_dataset = context.make_dataset
        spec = node.input.element_spec()
        self._group_spec = None if isinstance(spec, UnknownSpec) else Pickled.of(spec)
        self._key: Callable[..., Any] = node.key_function.value
        # The three functions draw differently.
        self._nested = NestedDatasets(context, node, node.reduce_function.value)
        self._keyed = Calls(context.inner(0), node)
        self._recorded = self._keyed.recorded()
        self._sizes_context = context.inner(1)
        self._sizes_recorded = stream_calls(self._sizes_context, node)
        self._sizes: dict[int, int] = {}
        self._groups: dict[int, list[Any]] = {}
        self._rest: list[int] = []
        self._groups_opened = 0
        self._block: Iterator[Any] = iter(())
        self._index = 0
        self._ended = False

    def close(self) -> None:
        self._ended = True
        self._block = iter(())
        self._groups.clear()
        super().close()
        self._input.close()

    def _open_next(self, max_elements: int, max_bytes: int, lazy: bool) -> Stream | None:
        """Read elements until a group is full and open its dataset; None at the end."""
        while not self._ended:
            for element in self._block:
                key = self._add(element)
                if key is not None:
                    return self._open(key)
            self._block = iter(self._read(max_elements, max_bytes, lazy))
        if not self._groups:
            return None
        if not self._rest:
            # Keys are removed from the end of the list, so the smallest key comes first, as in
            # tf.data.
            self._rest = sorted(self._groups, reverse=True)
        return self._open(self._rest.pop())

    def _read(self, max_elements: int, max_bytes: int, lazy: bool) -> list[Any]:
        try:
            elements = self._input.next_chunk(max_elements, max_bytes, lazy)
        except Exception:
            self._index += 1
            raise
        self._ended = not elements
        return elements

    def _add(self, element: Any) -> int | None:
        """Add an element to its group; return the key if the group is full."""
        index = self._index
        self._index += 1
        try:
            key = self._key_of(element, index)
            size = self._node.window_size or self._sizes.get(key)
            if size is None:
                # The size function is called once for each key, as in tf.data.
                size = self._sizes[key] = self._size_of(key, index)
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            raise_failure(error, self._node.origin.at(index, element))
        group = self._groups.setdefault(key, [])
        # A group is a dataset, which may be read several times; its arrays are read-only.
        group.append(frozen(element))
        return key if len(group) >= size else None

    def _key_of(self, element: Any, index: int) -> int:
        recorded = self._recorded
        slot = -1 if recorded is None else recorded.begin(index, index + 1, element)
        try:
            with self._keyed.over(iter((element,)), index + 1) as calls:
                found = apply(self._key, next(calls))
        finally:
            if recorded is not None:
                recorded.end(slot)
        return _as_int("key_func", found)

    def _size_of(self, key: int, index: int) -> int:
        function = self._node.window_size_function
        assert function is not None
        with keyed(self._sizes_context, self._node, index, self._sizes_recorded, key):
            size = _as_int("window_size_func", function.value(key))
        if size < 1:
            raise InvalidArgumentError(
                f"the result of `window_size_func`, the window size, must be at least 1; got "
                f"{size} for key {key}"
            )
        return size

    def _open(self, key: int) -> Stream:
        elements = Elements.of(self._groups.pop(key), self._group_spec, self._node.site)
        self._groups_opened += 1
        return self._nested.open(self._groups_opened - 1, (key, self._make_dataset(elements)))


def _as_int(name: str, value: Any) -> int:
    try:
        # NumPy's bools have no __index__, but are common results of a comparison.
        return operator.index(bool(value) if isinstance(value, np.bool_) else value)
    except TypeError:
        raise InvalidTypeError(
            f"`{name}` must return an int; it returned a {type(value).__qualname__}: {value!r}"
        ) from None
