"""batch: stacks consecutive elements; fused with a preceding map."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from msgspec.structs import replace

from stoker.dataset.collation.collate import collate
from stoker.dataset.collation.slots import Slots
from stoker.dataset.nodes.map import Map
from stoker.dataset.streams.failures import Origin, mark_failure
from stoker.dataset.streams.rows.gathered_batches import GatheredBatches
from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads.parallel import Finish
from stoker.dataset.tree.node import Context, Node
from stoker.dataset.tree.table import Allocate
from stoker.elements.sizes import element_bytes
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec, with_shape
from stoker.elements.structure import map_structure

# A batch needs all its elements, so all that are ready are read in a single call.
_NO_LIMIT = 1 << 62


class Batch(Node, frozen=True, eq=False, kw_only=True):
    """Stacks `batch_size` consecutive elements, leaf by leaf.

    Attributes:
        input: the node below.
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
        origin = Origin(self.kind, self.site, None)
        allocate = context.allocate_for(self)
        table = self.input.table()
        if table is not None:
            return GatheredBatches(
                # Arrays are read by row numbers: rows are gathered when a batch is built, 5.9
                # million against 0.5 million images/s. (docs/decisions/083)
                replace(context, as_rows=True).open(self.input),
                self.batch_size,
                self.drop_remainder,
                table=table,
                allocate=allocate,
                origin=origin,
            )
        return BatchStream(
            context.open(self.input),
            self.batch_size,
            self.drop_remainder,
            partial(collate, allocate=allocate),
            origin,
        )


class MapAndBatch(Node, frozen=True, eq=False, kw_only=True):
    """``map`` and ``batch`` in one step: the thread that computes element k writes to row k.

    `Node.fused` creates this node, which has the meaning of both nodes.

    Attributes:
        input: the map, whose stream is not used.
        batch_size: as of the batch.
        drop_remainder: as of the batch.
    """

    kind: ClassVar[str] = "map_and_batch"
    input: Node
    batch_size: int
    drop_remainder: bool = False

    @property
    def stage_kind(self) -> str:
        return "batch"

    def element_spec(self) -> Spec:
        return batched_spec(self.input.element_spec(), self.batch_size, self.drop_remainder)

    def cardinality(self) -> int:
        return batched_cardinality(self.input.cardinality(), self.batch_size, self.drop_remainder)

    def inputs_per_element(self) -> int:
        return self.batch_size

    def open(self, context: Context) -> Stream:
        mapping = self.input
        assert isinstance(mapping, Map)
        slots = _SlotsOfBatches(self.batch_size, context.allocate_for(self))
        calls = mapping.open_calls(context, slots.writer, self.batch_size)
        context.meters.watch(mapping, context.numbers, calls)
        return BatchStream(
            calls,
            self.batch_size,
            self.drop_remainder,
            slots.collate,
            Origin("batch", self.site, None),
        )


def batched_spec(spec: Spec, batch_size: int, drop_remainder: bool) -> Spec:
    """Return the spec of batches of elements of `spec`; batches of RaggedArrays are ragged, too."""
    length = batch_size if drop_remainder else None

    def of_leaf(leaf: Any) -> Any:
        if isinstance(leaf, TensorSpec | SparseSpec | RaggedSpec):
            return with_shape(leaf, (length, *leaf.shape), more_ragged=1)
        return leaf

    return map_structure(of_leaf, spec)


def batched_cardinality(cardinality: int, batch_size: int, drop_remainder: bool) -> int:
    """Return the number of batches for a cardinality, which may be infinite or unknown."""
    if cardinality < 0:
        return cardinality
    return cardinality // batch_size if drop_remainder else -(-cardinality // batch_size)


class BatchStream(Stream):
    """Collects elements and stacks them on the thread that reads.

    A batch fails if an element fails: the error occupies one position and all inputs of the batch.

    Args:
        stream: the elements.
        batch_size: of the node.
        drop_remainder: of the node.
        stack: builds a batch of its elements.
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

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy or max_elements == 1:
            try:
                self._gather(self._size)
            except StopIteration:
                return []
            return [self._stack_first()]
        ahead = max_bytes // self._batch_bytes if self._batch_bytes else 1
        try:
            self._gather(self._size * max(1, min(max_elements, ahead)))
        except StopIteration:
            return []
        batches = [self._stack_first()]
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
        elements = len(self._held) + self._stream.advance(wanted)
        self._held.clear()
        passed = batched_cardinality(elements, self._size, self._drop_remainder)
        self._index += passed
        return passed

    def close(self) -> None:
        self._held.clear()
        self._stream.close()

    def _gather(self, most: int) -> None:
        """Buffer at least the elements of a batch, and up to `most` elements that are ready.

        Raises:
            StopIteration: no batch is left.
            Exception: an element's error; the remaining elements of the batch are skipped.
        """
        held = self._held
        while len(held) < self._size:
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

    def _pass_failed(self) -> None:
        rest = self._size - len(self._held) - 1
        self._held.clear()
        passed = self._stream.advance(rest) if rest else 0
        if passed < rest and self._drop_remainder:  # the batch would have been dropped
            raise StopIteration
        self._index += 1

    def _stack_first(self) -> Any:
        """Remove and return the first batch; its elements are removed even if stacking fails."""
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
