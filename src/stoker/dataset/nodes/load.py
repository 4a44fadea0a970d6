"""load: the elements that `Dataset.save` wrote."""

from typing import Any, ClassVar

from stoker.dataset.formats.elements_stream import StoredFile, StoredStream
from stoker.dataset.formats.storage import folder_at
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, IndexSource
from stoker.elements.spec import Spec, spec_from_wire


class Load(IndexSource, frozen=True, eq=False, kw_only=True):
    """The elements of a store's files, file after file.

    Attributes:
        path: the store's folder, local or a URL.
        files: the files to read.
        stored: the element_spec in the store, in wire form.
        spec: the element_spec the user declared.
    """

    kind: ClassVar[str] = "load"
    path: str
    files: tuple[StoredFile, ...]
    stored: Any
    spec: Pickled | None = None

    def element_spec(self) -> Spec:
        # Only the declared spec names the user's namedtuples and dataclasses.
        return spec_from_wire(self.stored) if self.spec is None else self.spec.value

    def cardinality(self) -> int:
        return sum(file.count for file in self.files)

    def open(self, context: Context) -> Stream:
        spec = self.element_spec()
        return StoredStream(context, self, folder_at(self.path), self.files, spec)
