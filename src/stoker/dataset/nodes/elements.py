"""Elements in memory as a source, for windows and groups."""

from typing import Any, ClassVar, Self

from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.source import IndexStream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, IndexSource, declared_spec
from stoker.elements.frozen import fresh
from stoker.elements.sizes import element_bytes
from stoker.elements.spec import Spec


class Elements(IndexSource, frozen=True, eq=False, kw_only=True):
    """A list of elements; their arrays must be read-only, because every epoch yields the same.

    Attributes:
        value: the list.
        count: its length.
        spec: the known spec of the elements.
    """

    kind: ClassVar[str] = "elements"
    value: Pickled
    count: int
    spec: Pickled | None = None

    @classmethod
    def of(cls, elements: list[Any], spec: Pickled | None, site: str) -> Self:
        """Return the node of a list, which is not copied."""
        return cls(value=Pickled.of(elements), count=len(elements), spec=spec, site=site)

    def element_spec(self) -> Spec:
        return declared_spec(self.spec)

    def cardinality(self) -> int:
        return self.count

    def open(self, context: Context) -> Stream:
        elements: list[Any] = self.value.value

        def read(start: int, stop: int) -> list[Any]:
            # Containers are copied: each epoch yields the same objects, and a user may change a
            # dict.
            return fresh(elements[start:stop])

        unit = element_bytes(elements[0]) if elements else 1
        return IndexStream(context, self, self.count, unit, read)
