"""zip: combines the elements of several datasets."""

from collections.abc import Iterator
from typing import Any, ClassVar

from stoker.dataset.pickled import Pickled
from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Context, Node
from stoker.dataset.tree.splits import IndexSplits, Unsplittable
from stoker.dataset.tree.splitting import aligned_branches, aligned_splits
from stoker.elements.spec import Spec, UnknownSpec, spec_from_wire, spec_to_wire
from stoker.elements.structure import (
    Container,
    children,
    container_of,
    map_structure,
    pack_like,
    rebuild,
)
from stoker.errors import FailedPreconditionError


class Zip(Node, frozen=True, eq=False, kw_only=True):
    """Combines the k-th elements of all inputs; ends with the shortest.

    An error of an input occupies the position, and the others skip theirs.

    Attributes:
        parts: the inputs, in the order of the leaves of `nesting`.
        nesting: the structure of an element, as builtin values.
        template: the same with the user's classes, if it has any.
    """

    kind: ClassVar[str] = "zip"
    forwards_elements: ClassVar[bool] = True
    parts: tuple[Node, ...]
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

    def open(self, context: Context) -> Stream:
        streams = [
            part.open(branch)
            for part, branch in zip(
                self.parts, aligned_branches(self, self.parts, context), strict=True
            )
        ]
        return _ZipStream(streams, [part.cardinality() for part in self.parts], self._template())


def _names_classes(template: Any) -> bool:
    container = container_of(type(template))
    if container in (Container.NAMEDTUPLE, Container.DATACLASS):
        return True
    return container is not Container.LEAF and any(_names_classes(x) for _, x in children(template))


class _ZipStream(Stream):
    """Buffers the elements of one input until the others have theirs.

    Args:
        streams: the inputs.
        cardinalities: of the inputs; those that may be long are skipped last.
        template: the structure of an element.
    """

    def __init__(self, streams: list[Stream], cardinalities: list[int], template: Any) -> None:
        self._streams = streams
        self._cardinalities = cardinalities
        self._template = template
        # The buffered elements of each input, from the next position on.
        self._kept: list[list[Any]] = [[] for _ in streams]
        self._at = [0] * len(streams)
        self._ended = False
        self._interrupted = False

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        self._check_aligned()
        share = max(1, max_bytes // len(self._streams))
        if self._ended or not self._fill(max_elements, share, lazy):
            return []
        inputs = range(len(self._streams))
        count = min(max_elements, *map(self._left, inputs))
        columns = [self._taken(i, count) for i in inputs]
        for column in columns:
            if type(column[0]) is Failure:
                raise column[0].error
        return _pack(self._template, iter(columns), count)

    def _left(self, i: int) -> int:
        return len(self._kept[i]) - self._at[i]

    def _taken(self, i: int, count: int) -> list[Any]:
        kept, at = self._kept[i], self._at[i]
        if at + count < len(kept):
            self._at[i] = at + count
            return kept[at : at + count]
        self._kept[i], self._at[i] = [], 0
        return kept[at:] if at else kept

    def _fill(self, most: int, max_bytes: int, lazy: bool) -> bool:
        """Read at least one element of every input; return False at the end."""
        for i, stream in enumerate(self._streams):
            if not self._kept[i]:
                try:
                    self._kept[i] = stream.next_chunk(most, max_bytes, lazy)
                except Exception as error:  # noqa: BLE001 - it occupies its position
                    self._kept[i] = [Failure(error)]
                except BaseException:
                    self._interrupted = True
                    raise
                if not self._kept[i]:
                    self._end(stream)
                    return False
            if not lazy:
                most = min(most, self._left(i))  # no more than the other inputs have
        return True

    def _check_aligned(self) -> None:
        if self._interrupted and not self._ended:
            raise FailedPreconditionError(
                "this iterator was interrupted while it read the inputs of `zip`, so that their "
                "elements may no longer belong together; make a new one with iter(dataset)"
            )

    def _end(self, ended: Stream) -> None:
        """Read the others once more, so that caches that end here are completed, as in tf.data."""
        self._ended = True
        for i in range(self._streams.index(ended) + 1, len(self._streams)):
            if not self._kept[i] and self._cardinalities[i] != INFINITE_CARDINALITY:
                try:
                    self._streams[i].next_chunk(1, 1)
                except Exception:  # noqa: BLE001 - after the end
                    continue

    def advance(self, n: int) -> int:
        self._check_aligned()
        if self._ended:
            return 0
        passed = n
        # Inputs known to end come first, so that endless ones are not skipped further than needed.
        for i in sorted(range(len(self._streams)), key=lambda i: self._cardinalities[i] < 0):
            held = len(self._taken(i, min(passed, self._left(i))))
            if passed > held:
                passed = held + self._streams[i].advance(passed - held)
        self._ended = passed < n
        return passed

    def close(self) -> None:
        self._ended = True
        for stream in self._streams:
            stream.close()


def _pack(template: Any, columns: Iterator[list[Any]], count: int) -> list[Any]:
    """Build `count` elements from a column per leaf, container by container."""
    container = container_of(type(template))
    if container is Container.LEAF:
        return next(columns)
    members = [_pack(member, columns, count) for _, member in children(template)]
    if not members:
        return [rebuild(template, ()) for _ in range(count)]
    rows = zip(*members, strict=True)
    if container is Container.TUPLE:
        return list(rows)
    if container is Container.DICT:
        keys = list(template)
        return [dict(zip(keys, row)) for row in rows]  # noqa: B905
    return [rebuild(template, row) for row in rows]
