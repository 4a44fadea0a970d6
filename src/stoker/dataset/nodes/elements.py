"""Elements in memory as a source: what a window or a group is a dataset of."""

from typing import TYPE_CHECKING, Any, ClassVar

from stoker.dataset.execute import Context
from stoker.dataset.node import IndexSplits, Node
from stoker.dataset.opaque import Opaque
from stoker.dataset.source import IndexStream
from stoker.dataset.stream import Stream
from stoker.dataset.values.frozen import fresh
from stoker.dataset.values.sizes import element_bytes
from stoker.dataset.values.spec import Spec, UnknownSpec

if TYPE_CHECKING:
    from stoker.dataset.dataset import Dataset


class Elements(Node, frozen=True, eq=False, kw_only=True):
    """A list of elements; their arrays must be read-only, for every pass hands out the same.

    Attributes:
        value: the list.
        count: how many.
        spec: what is known of them.
    """

    kind: ClassVar[str] = "elements"
    value: Opaque
    count: int
    spec: Opaque | None = None

    def element_spec(self) -> Spec:
        return UnknownSpec() if self.spec is None else self.spec.value

    def cardinality(self) -> int:
        return self.count

    def splits(self) -> IndexSplits:
        return IndexSplits(self.count)

    def open(self, context: Context) -> Stream:
        elements: list[Any] = self.value.value

        def read(start: int, stop: int) -> list[Any]:
            return fresh(elements[start:stop])

        unit = element_bytes(elements[0]) if elements else 1
        return IndexStream(context, self, self.count, unit, read)


def dataset_of(elements: list[Any], spec: Opaque | None, site: str) -> "Dataset":
    """A Dataset of elements whose arrays are read-only (`frozen`).

    Args:
        elements: kept, not copied.
        spec: what is known of them.
        site: the user's line that asked for it.
    """
    from stoker.dataset.dataset import Dataset  # imports the nodes

    value = Opaque.of(elements)
    return Dataset(Elements(value=value, count=len(elements), spec=spec, site=site))
