"""zip: combines the elements of several datasets."""

from typing import Any, ClassVar

from stoker.dataset.collation.rows import row_builder
from stoker.dataset.collation.tables import ZippedTable
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.rows.zipped_rows import StreamsInStep, ZippedRows
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Context,
    SeveralInputs,
)
from stoker.dataset.tree.splits import IndexSplits, Unsplittable
from stoker.dataset.tree.splitting import aligned_branches, aligned_splits
from stoker.dataset.tree.table import Table
from stoker.elements.spec import Spec, UnknownSpec, spec_from_wire, spec_to_wire
from stoker.elements.structure import (
    Container,
    children,
    container_of,
    is_leaf,
    map_structure,
    pack_like,
)
from stoker.errors import FailedPreconditionError


class Zip(SeveralInputs, frozen=True, eq=False, kw_only=True):
    """Combines the k-th elements of all inputs; ends with the shortest.

    An error of an input occupies the position, and all inputs skip their element.

    Attributes:
        parts: the inputs, in the order of the leaves of `nesting`.
        nesting: the structure of an element, as builtin values.
        template: the same with the user's classes, if any.
    """

    kind: ClassVar[str] = "zip"
    nesting: Any
    template: Pickled | None = None

    @staticmethod
    def nesting_of(datasets: Any) -> dict[str, Any]:
        """Return the fields `nesting` and `template` for a nest of datasets."""
        template = map_structure(lambda _: UnknownSpec(), datasets)
        named = Pickled.of(template) if _names_classes(template) else None
        return {"nesting": spec_to_wire(template), "template": named}

    def _template(self) -> Any:
        return spec_from_wire(self.nesting) if self.template is None else self.template.value

    def element_spec(self) -> Spec:
        return pack_like(self._template(), [part.element_spec() for part in self.parts])

    def cardinality(self) -> int:
        counts = [part.cardinality() for part in self.parts]
        if 0 in counts:
            return 0
        if UNKNOWN_CARDINALITY in counts:
            return UNKNOWN_CARDINALITY
        return min((count for count in counts if count >= 0), default=INFINITE_CARDINALITY)

    def splits(self) -> IndexSplits | Unsplittable:
        return aligned_splits(self.parts)

    def table(self) -> Table | None:
        tables = [part.table() for part in self.parts]
        if not all(tables):
            return None
        return ZippedTable([table for table in tables if table], self._template())

    def open(self, context: Context) -> Stream:
        branches = aligned_branches(self, self.parts, context)
        streams = [branch.open(part) for part, branch in zip(self.parts, branches, strict=True)]
        counts = [part.cardinality() for part in self.parts]
        if context.as_rows:
            return ZippedRows(streams, counts)
        return _ZipStream(streams, counts, self._template())


def _names_classes(template: Any) -> bool:
    container = container_of(type(template))
    if container in (Container.NAMEDTUPLE, Container.DATACLASS):
        return True
    return container is not Container.LEAF and any(_names_classes(x) for _, x in children(template))


class _ZipStream(StreamsInStep):
    """Buffers the elements of an input until all inputs have an element.

    Args:
        streams: the inputs.
        cardinalities: of the inputs.
        template: the structure of an element.
    """

    def __init__(self, streams: list[Stream], cardinalities: list[int], template: Any) -> None:
        super().__init__(streams, cardinalities)
        self._cardinalities = cardinalities
        self._build = row_builder(template)
        self._is_flat = container_of(type(template)) is Container.TUPLE and all(
            is_leaf(member) for _, member in children(template)
        )
        # The elements of each input that another has not matched yet, the next element last.
        self._buffers: list[list[Any]] = [[] for _ in streams]
        self._interrupted = False

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._interrupted:
            self._check_aligned()
        if self._ended:
            return []
        # An element of the result has an element of each input.
        max_bytes = max_bytes // len(self._streams) or 1
        if lazy and not all(self._buffers):
            return self._next_row(max_elements, max_bytes)
        count = self._fill(max_elements, max_bytes)
        if count <= 1:
            return self._next_row(max_elements, max_bytes) if count else []
        return self._build([_take(buffer, count) for buffer in self._buffers])

    def _fill(self, count: int, max_bytes: int) -> int:
        """Buffer elements of every input; return the number of whole rows, at most `count`."""
        for i, buffer in enumerate(self._buffers):
            left = len(buffer)
            if not left:
                try:
                    # No more than the preceding inputs have.
                    read = self._streams[i].next_chunk(count, max_bytes)
                except Exception as error:  # noqa: BLE001 - the error occupies its position
                    read = [Failure(error)]
                except BaseException:
                    # After a KeyboardInterrupt, inputs that were read before have an element more
                    # than the rest.
                    self._interrupted = True
                    raise
                left = len(read)
                if not left:
                    self._end(i)
                    return 0
                self._buffers[i] = read[::-1]
            count = min(count, left)
        return count

    def _next_row(self, max_elements: int, max_bytes: int) -> list[Any]:
        """Return the next row; an input with nothing buffered is read lazily."""
        row = []
        failure: BaseException | None = None
        for i, buffer in enumerate(self._buffers):
            if buffer:
                item = buffer.pop()
                if type(item) is Failure:
                    failure = failure or item.error
                row.append(item)
                continue
            try:
                read = self._streams[i].next_chunk(max_elements, max_bytes, True)
            except Exception as error:  # noqa: BLE001 - all inputs skip the position
                failure = failure or error
                continue
            except BaseException:
                self._interrupted = True
                raise
            if len(read) != 1:
                if not read:
                    self._end(i)
                    return []
                self._buffers[i] = read[:0:-1]
            row.append(read[0])
        if failure is not None:
            raise failure
        # A row of most zips costs half as much as by `_build`.
        return [tuple(row)] if self._is_flat else self._build([[item] for item in row])

    def _check_aligned(self) -> None:
        if self._interrupted and not self._ended:
            raise FailedPreconditionError(
                "this iterator was interrupted while it read the inputs of `zip`, so that their "
                "elements may no longer belong together; make a new one with iter(dataset)"
            )

    def _end(self, ended: int) -> None:
        """End the stream at the end of input `ended`."""
        self._ended = True
        # Each further input is read once more, so that caches that end here are completed, as in
        # tf.data.
        for i in range(ended + 1, len(self._streams)):
            if not self._buffers[i] and self._cardinalities[i] != INFINITE_CARDINALITY:
                try:
                    self._streams[i].next_chunk(1, 1)
                except Exception:  # noqa: BLE001 - after the end
                    continue

    def advance(self, n: int) -> int:
        self._check_aligned()
        return super().advance(n)

    def _drop(self, i: int, count: int) -> int:
        return len(_take(self._buffers[i], count))


def _take(buffer: list[Any], count: int) -> list[Any]:
    """Remove up to `count` elements, the last first."""
    start = max(0, len(buffer) - count)
    taken = buffer[start:]
    del buffer[start:]
    taken.reverse()
    return taken
