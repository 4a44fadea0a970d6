"""batch: consecutive elements as one; with map in front of it, in one step."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from stoker.dataset.collation.collate import Rows, collate
from stoker.dataset.nodes.map import InlineMap, Map, parallel_limit
from stoker.dataset.random import Calls
from stoker.dataset.streams.failures import Origin, mark_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads.adaptive import MEASURE_SECONDS, AdaptiveCalls, HandOver
from stoker.dataset.threads.parallel import OrderedCalls
from stoker.dataset.tree.node import AUTOTUNE, Allocate, Context, Node
from stoker.elements.sizes import element_bytes
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec
from stoker.elements.structure import map_structure
from stoker.errors import InvalidArgumentError

# A batch holds its elements anyway: whatever is ready of them is taken at once.
_NO_LIMIT = 1 << 62


class Batch(Node, frozen=True, eq=False, kw_only=True):
    """Stacks `batch_size` consecutive elements, leaf by leaf.

    Attributes:
        input: what it reads.
        batch_size: elements in a batch; the last may have fewer.
        drop_remainder: drop a last batch that has fewer.
    """

    kind: ClassVar[str] = "batch"
    input: Node
    batch_size: int
    drop_remainder: bool = False

    def element_spec(self) -> Spec:
        return batched_spec(self.input.element_spec(), self.batch_size, self.drop_remainder)

    def cardinality(self) -> int:
        return batched_cardinality(self.input.cardinality(), self.batch_size, self.drop_remainder)

    def inputs_per_element(self) -> int:
        return self.batch_size

    def fused(self) -> Node:
        # On one thread there is nothing to gain.
        if not isinstance(self.input, Map) or self.input.num_parallel_calls is None:
            return self
        return MapAndBatch(
            input=self.input,
            batch_size=self.batch_size,
            drop_remainder=self.drop_remainder,
            site=self.site,
        )

    def open(self, context: Context) -> Stream:
        return BatchStream(
            self.input.open(context),
            self.batch_size,
            self.drop_remainder,
            partial(collate, allocate=context.allocate_for(self)),
            Origin(self.kind, self.site, None),
        )


class MapAndBatch(Node, frozen=True, eq=False, kw_only=True):
    """``map`` then ``batch`` in one step: the thread that computes element k writes it into row k.

    Made by `rewrite`, never by users; means exactly what the two nodes mean.

    Attributes:
        input: the map, read only through this.
        batch_size: the batch's.
        drop_remainder: the batch's.
    """

    kind: ClassVar[str] = "map_and_batch"
    input: Node
    batch_size: int
    drop_remainder: bool = False

    def element_spec(self) -> Spec:
        return batched_spec(self.input.element_spec(), self.batch_size, self.drop_remainder)

    def cardinality(self) -> int:
        return batched_cardinality(self.input.cardinality(), self.batch_size, self.drop_remainder)

    def inputs_per_element(self) -> int:
        return self.batch_size

    def open(self, context: Context) -> Stream:
        mapping = self.input
        assert isinstance(mapping, Map)
        function: Callable[..., Any] = mapping.function.value
        map_origin = Origin(mapping.kind, mapping.site, None)
        batch_origin = Origin("batch", self.site, None)
        limit = parallel_limit(mapping.num_parallel_calls, context, self.batch_size)
        stream = mapping.input.open(context)
        new_calls = partial(Calls, context, mapping)
        mapped = InlineMap(stream, function, map_origin, new_calls())
        stack = partial(collate, allocate=context.allocate_for(self))
        stacking = (self.batch_size, self.drop_remainder, stack, batch_origin)
        if limit is None:
            return BatchStream(mapped, *stacking)
        return AdaptiveCalls(
            _InlineMapAndBatch(mapped, *stacking),
            lambda: OrderedCalls(
                stream,
                function,
                limit,
                map_origin,
                new_calls,
                size=self.batch_size,
                sink=lambda n: _BatchSink(
                    self.batch_size, context.allocate_for(self), batch_origin._replace(index=n)
                ),
                drop_remainder=self.drop_remainder,
            ),
            probe=mapping.num_parallel_calls == AUTOTUNE,
        )


def batched_spec(spec: Spec, batch_size: int, drop_remainder: bool) -> Spec:
    """The spec of batches of elements of `spec`.

    Raises:
        InvalidArgumentError: a leaf is ragged.
    """
    length = batch_size if drop_remainder else None

    def of_leaf(leaf: Any) -> Any:
        if isinstance(leaf, TensorSpec | SparseSpec):
            return type(leaf)((length, *leaf.shape), leaf.dtype)
        if isinstance(leaf, RaggedSpec):
            raise ragged_twice("batch", leaf)
        return leaf

    return map_structure(of_leaf, spec)


def ragged_twice(method: str, spec: RaggedSpec) -> InvalidArgumentError:
    """The error of a dataset whose elements are ragged before they are put in batches."""
    return InvalidArgumentError(
        f"cannot {method} elements with a {spec}: a batch would be ragged in two dimensions, which "
        "a RaggedArray cannot be; use rebatch to join their rows, or unbatch and padded_batch to "
        "make an array of them"
    )


def batched_cardinality(cardinality: int, batch_size: int, drop_remainder: bool) -> int:
    """How many batches so many elements make; infinite and unknown stay what they are."""
    if cardinality < 0:
        return cardinality
    return cardinality // batch_size if drop_remainder else -(-cardinality // batch_size)


class BatchStream(Stream):
    """Collects elements and puts them together on the thread that reads.

    A batch of which an element fails, fails: it occupies one position and all its inputs.

    Args:
        stream: the elements.
        batch_size: of the node.
        drop_remainder: of the node.
        stack: makes one batch of its elements.
        origin: of the node, for errors of `stack`.
    """

    def __init__(
        self,
        stream: Stream,
        batch_size: int,
        drop_remainder: bool,
        stack: Callable[[list[Any]], Any],
        origin: Origin,
    ) -> None:
        self._stream = stream
        self._size = batch_size
        self._drop_remainder = drop_remainder
        self._stack_values = stack
        self._origin = origin
        self._index = 0
        self._held: list[Any] = []
        self._batch_bytes = 0

    def next(self) -> Any:
        self._gather(self._size)
        return self._stack_first()

    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        ahead = max_bytes // self._batch_bytes if self._batch_bytes else 1
        try:
            self._gather(self._size * max(1, min(max_elements, ahead)))
        except StopIteration:
            return []
        batches = [self._stack_first()]
        self._batch_bytes = element_bytes(batches[0])
        most = min(max_elements, max_bytes // self._batch_bytes) - 1
        used = 0  # removed together: for each batch alone, all that is behind it would move
        for stop in range(self._size, min(most * self._size, len(self._held)) + 1, self._size):
            try:
                batches.append(self._stack(self._held[used:stop]))
            except Exception:  # noqa: BLE001 - its elements stay, so the next call raises it
                break
            used = stop
            self._index += 1
        del self._held[:used]
        return batches

    def advance(self, n: int) -> int:
        wanted = n * self._size - len(self._held)
        if wanted <= 0:
            del self._held[: n * self._size]
            self._index += n
            return n
        elements = len(self._held) + self._stream.advance(wanted)
        self._held.clear()
        passed = batched_cardinality(elements, self._size, self._drop_remainder)
        self._index += passed
        return passed

    def close(self) -> None:
        self._held.clear()
        self._stream.close()

    def _gather(self, most: int) -> None:
        """Hold one batch's elements at least, and up to `most` if they are ready.

        Raises:
            StopIteration: no batch is left.
            Exception: an element's error; the batch's other elements are passed.
        """
        held = self._held
        while len(held) < self._size:
            self._before_read()
            try:
                chunk = self._stream.next_chunk(most - len(held), _NO_LIMIT)
            except Exception:
                self._pass_failed()
                raise
            if not chunk:
                if self._drop_remainder:
                    held.clear()
                if not held:
                    raise StopIteration
                return
            held.extend(chunk)

    def _before_read(self) -> None:
        """A subclass may stop here; the elements held stay."""

    def _pass_failed(self) -> None:
        rest = self._size - len(self._held) - 1
        self._held.clear()
        passed = self._stream.advance(rest) if rest else 0
        if passed < rest and self._drop_remainder:  # the batch would not have been delivered
            raise StopIteration
        self._index += 1

    def _stack_first(self) -> Any:
        """The first batch; its elements are gone also if they cannot be stacked."""
        try:
            return self._stack(self._held[: self._size])
        finally:
            self._take_first()

    def _take_first(self) -> None:
        del self._held[: self._size]
        self._index += 1

    def _stack(self, values: list[Any]) -> Any:
        try:
            return self._stack_values(values)
        except Exception as error:
            mark_failure(error, self._origin._replace(index=self._index))
            raise


class _InlineMapAndBatch(BatchStream):
    """A batch over an inline map that can hand over to `OrderedCalls`."""

    def __init__(
        self,
        mapped: InlineMap,
        batch_size: int,
        drop_remainder: bool,
        stack: Callable[[list[Any]], Any],
        origin: Origin,
    ) -> None:
        super().__init__(mapped, batch_size, drop_remainder, stack, origin)
        self._mapped = mapped

    @property
    def seconds(self) -> float:
        return self._mapped.seconds

    @property
    def mean_seconds(self) -> float:
        return self._mapped.mean_seconds

    def costly(self) -> bool:
        return self._mapped.costly()

    def keep(self, verdicts: int) -> None:
        self._mapped.keep(verdicts)

    def _before_read(self) -> None:
        if self.seconds >= MEASURE_SECONDS and self.costly():
            raise HandOver

    def hand_over(self) -> tuple[list[Any], list[Any], int] | None:
        handed = self._mapped.hand_over()
        if handed is None:
            return None
        done = list(self._held)
        self._held.clear()
        return done, handed[1], handed[2]

    def resume(self, index: int) -> None:
        self._mapped.resume(index)
        self._index = index // self._size


class _BatchSink:
    """Takes a batch's elements on the threads that computed them."""

    __slots__ = ("_allocate", "_origin", "_rows", "_values")

    def __init__(self, size: int, allocate: Allocate, origin: Origin) -> None:
        self._allocate = allocate
        self._origin = origin
        self._rows = Rows(size, allocate)
        self._values: list[Any] = [None] * size

    def put(self, slot: int, value: Any) -> None:
        self._values[slot] = self._rows.write(slot, value)

    def result(self, count: int) -> Any:
        try:
            return collate(self._values[:count], self._allocate, self._rows)
        except Exception as error:
            mark_failure(error, self._origin)
            raise
