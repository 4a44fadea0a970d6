"""batch: stacks consecutive elements; fused with a preceding map."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from msgspec.structs import replace

from stoker.dataset.collation.collate import collate
from stoker.dataset.collation.slots import Slots
from stoker.dataset.nodes.map import Map
from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.streams.failures import raise_failure
from stoker.dataset.streams.rows.gathered_batches import GatheredBatches
from stoker.dataset.streams.stream import NO_LIMIT, OneInputStream, Stream
from stoker.dataset.threads.parallel import Finish
from stoker.dataset.tree.node import Context, Node, OneInput
from stoker.dataset.tree.table import Allocate
from stoker.elements.sizes import element_bytes
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec, with_shape
from stoker.elements.structure import map_structure


class Batches(OneInput, frozen=True, eq=False, kw_only=True):
    """A node that combines runs of consecutive elements; by default leaves are stacked.

    Attributes:
        batch_size: elements in a batch; the last may have fewer.
        drop_remainder: drop a last batch that has fewer.
    """

    batch_size: int
    drop_remainder: bool = False

    @property
    def length(self) -> int | None:
        """The first dimension of all batches; None if the last batch may be shorter."""
        return self.batch_size if self.drop_remainder else None

    def batches_of(self, elements: int) -> int:
        """Return the number of batches of `elements` elements."""
        missing = 0 if self.drop_remainder else self.batch_size - 1
        return (elements + missing) // self.batch_size

    def element_spec(self) -> Spec:
        # Batches of RaggedArrays are ragged, too.
        def of_leaf(leaf: Any) -> Any:
            if isinstance(leaf, TensorSpec | SparseSpec | RaggedSpec):
                return with_shape(leaf, (self.length, *leaf.shape), more_ragged=1)
            return leaf

        return map_structure(of_leaf, self.input.element_spec())

    def cardinality(self) -> int:
        elements = self.input.cardinality()
        return elements if elements < 0 else self.batches_of(elements)

    def inputs_per_element(self) -> int:
        return self.batch_size

    def input_positions(self) -> InputPositions:
        return InputPositions(stride=self.batch_size, group=self.batch_size)


class Batch(Batches, frozen=True, eq=False, kw_only=True):
    """Stacks `batch_size` consecutive elements, leaf by leaf."""

    kind: ClassVar[str] = "batch"

    def fused(self) -> Node:
        # On a single thread there is nothing to gain.
        if not isinstance(self.input, Map) or self.input.num_parallel_calls is None:
            return self
        return MapAndBatch(
            input=self.input,
            batch_size=self.batch_size,
            drop_remainder=self.drop_remainder,
            site=self.site,
        )

    def open(self, context: Context) -> Stream:
        allocate = context.allocate_for(self)
        table = self.input.table()
        if table is None:
            stack = partial(collate, allocate=allocate)
            return BatchStream(self, context, context.open(self.input), stack)
        # Arrays are read by row numbers: rows are gathered when a batch is built, 5.9 million
        # against 0.5 million images/s. (docs/decisions/083)
        rows = replace(context, as_rows=True).open(self.input)
        return GatheredBatches(
            rows, self.batch_size, self.drop_remainder, table, allocate, context.origin(self)
        )


class MapAndBatch(Batches, frozen=True, eq=False, kw_only=True):
    """``map`` and ``batch`` in one step: the thread that computes element k writes to row k.

    `Node.fused` creates this node, which has the meaning of both nodes; the input is the map, whose
    stream is not used.
    """

    kind: ClassVar[str] = "map_and_batch"

    @property
    def stage_kind(self) -> str:
        return "batch"

    def open(self, context: Context) -> Stream:
        mapping = self.input
        assert isinstance(mapping, Map)
        slots = _SlotsOfBatches(self.batch_size, context.allocate_for(self))
        calls = mapping.open_calls(context, slots.writer, self.batch_size)
        # `Context.open`, which measures the stream of the map, is not called for the map.
        context.meters.watch(mapping, context.numbers, calls)
        return BatchStream(self, context, calls, slots.collate)


class BatchStream(OneInputStream):
    """Collects elements and stacks them on the thread that reads.

    A batch fails if an element fails: the error occupies one position and all inputs of the batch.

    Args:
        node: of the batches.
        context: of the node.
        stream: the elements.
        stack: builds a batch of its elements.
    """

    def __init__(
        self,
        node: Batches,
        context: Context,
        stream: Stream,
        stack: Callable[[list[Any]], Any],
    ) -> None:
        super().__init__(stream)
        self._node = node
        self._origin = context.origin(node)
        self._size = node.batch_size
        self._stack_values = stack
        self._index = 0
        self._held: list[Any] = []
        self._batch_bytes = 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy:
            max_elements = 1
        # The first batch shows the size of a batch; only then are several batches read together.
        ahead = max_bytes // self._batch_bytes if self._batch_bytes else 1
        try:
            self._gather(self._size * max(1, min(max_elements, ahead)))
        except StopIteration:
            return []
        batches = [self._stack_first()]
        if max_elements == 1:  # measuring the batch would cost more than it saves
            return batches
        self._batch_bytes = element_bytes(batches[0])
        most = min(max_elements, max_bytes // self._batch_bytes) - 1
        used = 0  # removed together: removing each batch would move all later elements
        for stop in range(self._size, min(most * self._size, len(self._held)) + 1, self._size):
            try:
                batches.append(self._stack(self._held[used:stop]))
            except Exception:  # noqa: BLE001 - the elements stay, so the next call raises
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
        # Elements are skipped in the input, so that a map below does not compute these elements.
        elements = len(self._held) + self._input.advance(wanted)
        self._held.clear()
        passed = self._node.batches_of(elements)
        self._index += passed
        return passed

    def close(self) -> None:
        self._held.clear()
        self._input.close()

    def _gather(self, most: int) -> None:
        """Buffer at least the elements of a batch, and up to `most` elements that are ready.

        Raises:
            StopIteration: no batch is left.
            Exception: an element's error; the remaining elements of the batch are skipped.
        """
        held = self._held
        while len(held) < self._size:
            try:
                # A batch needs all its elements, so all that are ready are read in a single call.
                chunk = self._input.next_chunk(most - len(held), NO_LIMIT)
            except Exception:
                self._pass_failed()
                raise
            if not chunk:
                if self._node.drop_remainder:
                    held.clear()
                if not held:
                    raise StopIteration
                return
            held.extend(chunk)

    def _pass_failed(self) -> None:
        rest = self._size - len(self._held) - 1
        self._held.clear()
        passed = self._input.advance(rest) if rest else 0
        if passed < rest and self._node.drop_remainder:  # the batch would have been dropped
            raise StopIteration
        self._index += 1

    def _stack_first(self) -> Any:
        """Remove and return the first batch; its elements are removed even if stacking fails."""
        try:
            return self._stack(self._held[: self._size])
        finally:
            del self._held[: self._size]
            self._index += 1

    def _stack(self, values: list[Any]) -> Any:
        try:
            return self._stack_values(values)
        except Exception as error:  # noqa: BLE001 - arrays of other libraries may raise anything
            raise_failure(error, self._origin.of(self._index))


class _Written(NamedTuple):
    """An element whose large arrays are in the slots of its batch."""

    slots: Slots
    value: Any


class _SlotsOfBatches:
    """Slots of the batches in flight: threads write into the slots, `collate` reads batches.

    Args:
        batch_size: elements in a batch.
        allocate: allocates the arrays of a batch.
    """

    def __init__(self, batch_size: int, allocate: Allocate) -> None:
        self._size = batch_size
        self._allocate = allocate
        self._number = -1
        # Weak: the memory of a yielded batch must not be kept until the next batch starts.
        self._last: weakref.ref[Slots] | None = None

    def writer(self, index: int) -> Finish:
        """Return the function that writes element `index`; indices never decrease."""
        # Threads of a batch may run while the next batch is begun, so each element keeps its slots.
        number, slot = divmod(index, self._size)
        slots = self._last() if self._last is not None and number == self._number else None
        if slots is None:
            slots = Slots(self._size, self._allocate)
            self._number, self._last = number, weakref.ref(slots)
        return partial(_write, slots, slot)

    def collate(self, values: list[Any]) -> Any:
        """Return the batch of `values`; values computed inline are not in slots yet."""
        if self._last is None or _Written not in set(map(type, values)):
            return collate(values, self._allocate)
        slots = next(value.slots for value in values if type(value) is _Written)
        members = [
            value.value if type(value) is _Written else slots.write(slot, value)
            for slot, value in enumerate(values)
        ]
        return collate(members, self._allocate, slots)


def _write(slots: Slots, slot: int, value: Any) -> _Written:
    return _Written(slots, slots.write(slot, value))
