"""load: the elements that `Dataset.save` wrote."""

from functools import partial
from typing import Any, ClassVar

from stoker.dataset.formats.elements_file import ElementsFile
from stoker.dataset.formats.elements_folder import ElementsPart, open_part
from stoker.dataset.formats.elements_stream import ElementFilesStream
from stoker.dataset.pickled import Pickled
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.dataset.tree.splits import IndexSplits
from stoker.elements.codec.elements import TypeResolver
from stoker.elements.spec import Spec, spec_from_wire


class Load(Node, frozen=True, eq=False, kw_only=True):
    """The elements of a folder's files, one file after the other.

    Attributes:
        path: the folder.
        files: those to read.
        stored: the element_spec of who saved them, in wire form.
        spec: the element_spec the user declared.
    """

    kind: ClassVar[str] = "load"
    path: str
    files: tuple[ElementsPart, ...]
    stored: Any
    spec: Pickled | None = None

    def element_spec(self) -> Spec:
        return spec_from_wire(self.stored) if self.spec is None else self.spec.value

    def cardinality(self) -> int:
        return sum(file.count for file in self.files)

    def splits(self) -> IndexSplits:
        return IndexSplits(self.cardinality())

    def open(self, context: Context) -> Stream:
        ranges = None
        if context.splits is not None:
            ranges = context.splits.open(context.numbers[self])
        types = TypeResolver(self.element_spec())
        counts = [file.count for file in self.files]
        return ElementFilesStream(counts, partial(self._open_file, types), ranges)

    def _open_file(self, types: TypeResolver, number: int) -> ElementsFile:
        return open_part(self.path, self.files[number], types)
