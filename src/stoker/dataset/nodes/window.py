"""window: groups runs of elements into datasets."""

import math
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from stoker.dataset.collation.collate import alike, columns_of
from stoker.dataset.nodes.elements import Elements
from stoker.dataset.nodes.shard import Shard
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.deadline import chunk_deadline
from stoker.dataset.streams.failures import Failure, raise_failure
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.elements.frozen import frozen
from stoker.elements.sizes import element_bytes
from stoker.elements.spec import Spec, UnknownSpec
from stoker.elements.structure import Container, children, container_of, rebuild
from stoker.errors import InvalidArgumentError

# The most elements and bytes read ahead: dropping a buffered element moves all later elements.
_READ_ELEMENTS = 1024
_READ_BYTES = 1 << 20


class Window(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields datasets of `size` elements, `stride` apart, starting at every `shift`-th element.

    If elements are tuples, dicts, namedtuples or dataclasses, a window is a nest of datasets.

    Attributes:
        size: elements in a window; the last ones may have fewer.
        shift: distance between the starts of two windows.
        stride: distance between two elements of a window.
        drop_remainder: drop windows with fewer elements.
    """

    kind: ClassVar[str] = "window"
    size: int
    shift: int
    stride: int = 1
    drop_remainder: bool = False

    def element_spec(self) -> Spec:
        return _spec(self.input.element_spec())

    def cardinality(self) -> int:
        elements = self.input.cardinality()
        return elements if elements < 0 else self.windows_of(elements)

    def windows_of(self, elements: int) -> int:
        """Return the number of windows over `elements` elements."""
        if not self.drop_remainder:
            return -(-elements // self.shift)
        span = (self.size - 1) * self.stride + 1
        return max(0, (elements - span) // self.shift + 1)

    def open(self, context: Context) -> Stream:
        step = math.gcd(self.shift, self.stride)
        if step == 1:
            return _WindowStream(context, self, self, context.open(self.input))
        # Only every step-th element is in any window: the rest is skipped, not computed.
        used = Shard(input=self.input, num_shards=step, index=0)
        shape = Window(
            input=self.input,
            size=self.size,
            shift=self.shift // step,
            stride=self.stride // step,
            drop_remainder=self.drop_remainder,
        )
        return _WindowStream(context, self, shape, used.open(context))


def _spec(spec: Spec) -> Spec:
    if container_of(type(spec)) in _LEAVES:
        return UnknownSpec()
    return rebuild(spec, [_spec(member) for _, member in children(spec)])


# A list that a function returned is a vector and not taken apart, as in tf.data.
_LEAVES = (Container.LEAF, Container.LIST)


class _WindowStream(OneInputStream):
    """Buffers the elements of the next window; a window fails if an element fails.

    Args:
        context: the context of the node.
        node: the node of the windows.
        shape: the node, over the elements of `stream` only.
        stream: the elements that are in some window.
    """

    def __init__(self, context: Context, node: Window, shape: Window, stream: Stream) -> None:
        self._node = node
        self._make_dataset = context.make_dataset
        self._shape = shape
        self._span = (shape.size - 1) * shape.stride + 1
        super().__init__(stream)
        # Elements between the last window and the next that are not skipped yet.
        self._gap = 0
        self._buffer: list[Any] = []
        self._ended = False
        self._index = 0
        spec = node.input.element_spec()
        self._specs = None if isinstance(spec, UnknownSpec) else spec

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy:
            max_elements = 1
        more = min((max_elements - 1) * self._shape.shift, _READ_ELEMENTS)
        self._fill(self._span, more, max_bytes)
        windows: list[Any] = []
        deadline = chunk_deadline()
        while len(windows) < max_elements and max_bytes > 0:
            window = self._window()
            if window is None:
                break
            try:
                windows.append(self._datasets(window))
            except Exception:
                if windows:  # the elements stay buffered, so that the next call raises the error
                    break
                self._shift()
                raise
            self._shift()
            max_bytes -= element_bytes(window[0]) * len(window)
            if len(self._buffer) < self._span and not self._ended:
                break
            if time.perf_counter() > deadline:
                break
        return windows

    def advance(self, n: int) -> int:
        if n <= 0:
            return 0
        shape = self._shape
        # The n-th window exists if `needed` elements do.
        needed = (n - 1) * shape.shift + (self._span if shape.drop_remainder else 1)
        after = n * shape.shift
        found = self._drop(min(after, needed))
        if found == after and after < needed:
            self._fill(needed - after)
            found += len(self._buffer)
        if found < needed:
            self._ended = True
            self._buffer.clear()
            skipped = shape.windows_of(found)
        else:
            skipped = n
            # Elements after the last skipped window are skipped only if a further window is read.
            self._gap = max(0, after - needed)
            self._skip_buffered_gap()
        self._index += skipped
        return skipped

    def close(self) -> None:
        self._ended = True
        self._buffer.clear()
        self._input.close()

    def _fill(self, least: int, more: int = 0, max_bytes: int = _READ_BYTES) -> None:
        """Buffer at least `least` elements if available, and up to `more` that are ready."""
        if self._gap and not self._ended:
            gap, self._gap = self._gap, 0
            self._input.advance(gap)
        buffered = self._buffer
        while len(buffered) < least and not self._ended:
            try:
                chunk = self._input.next_chunk(least + more - len(buffered), max_bytes)
            except Exception as error:  # noqa: BLE001 - raised at its window
                buffered.append(Failure(error))
                continue
            self._ended = not chunk
            buffered.extend(map(frozen, chunk))

    def _window(self) -> list[Any] | None:
        """Return the elements of the next window, None at the end."""
        window = self._buffer[: self._span : self._shape.stride]
        if len(window) < (self._shape.size if self._shape.drop_remainder else 1):
            self._buffer.clear()
            return None
        return window

    def _shift(self) -> None:
        self._index += 1
        self._gap = self._shape.shift
        self._skip_buffered_gap()

    def _skip_buffered_gap(self) -> None:
        buffered = min(self._gap, len(self._buffer))
        del self._buffer[:buffered]
        self._gap -= buffered

    def _drop(self, count: int) -> int:
        """Skip up to `count` elements; return the number of elements skipped."""
        if self._gap and not self._ended:
            gap, self._gap = self._gap, 0
            self._input.advance(gap)
        buffered = min(count, len(self._buffer))
        del self._buffer[:buffered]
        if buffered == count or self._ended:
            return buffered
        return buffered + self._input.advance(count - buffered)

    def _datasets(self, window: list[Any]) -> Any:
        failure = _failure(window)
        if failure is not None:
            raise failure.error
        try:
            return self._transpose(window, self._specs)
        except Exception as error:  # noqa: BLE001 - marked with its position
            raise_failure(error, self._node.origin._replace(index=self._index))

    def _transpose(self, values: Sequence[Any], spec: Spec) -> Any:
        first = values[0]
        if container_of(type(first)) in _LEAVES:
            known = None if spec is None else Pickled.of(spec)
            return self._make_dataset(Elements.of(list(values), known, self._node.site))
        columns = _columns(values)
        nested = container_of(type(spec)) is container_of(type(first))
        specs = [member for _, member in children(spec)] if nested else [None] * len(columns)
        return rebuild(first, list(map(self._transpose, columns, specs)))


def _columns(values: Sequence[Any]) -> list[Sequence[Any]]:
    """Return a list per member of containers of equal structure, with this member of all values."""
    if alike(values):
        return columns_of(values)
    first = values[0]
    others = [value for value in values if type(value) is not type(first)] or values[1:]
    raise InvalidArgumentError(
        f"the elements of a window must have one structure; got {first!r} and {others[0]!r}"
    )


def _failure(window: list[Any]) -> Failure | None:
    if Failure not in set(map(type, window)):
        return None
    return next(item for item in window if type(item) is Failure)
