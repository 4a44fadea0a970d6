"""cache(filename): the first whole epoch is kept in files, for later processes too."""

import threading
from typing import ClassVar
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from stoker.dataset.formats.elements_stream import StoredStream
from stoker.dataset.formats.storage import Folder, UnnamedFolder
from stoker.dataset.formats.store import Description
from stoker.dataset.pickling.fingerprint import Fingerprint
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.caching import LazyStream, read_or_write
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node, OneInput
from stoker.dataset.tree.splits import SplitReader


class CacheFile(OneInput, frozen=True, eq=False, kw_only=True):
    """Keeps the elements of the first epoch that was read, not skipped, to its end without errors.

    The store is the folder ``<filename>.stoker``. While another stream writes the store, a stream
    only reads its input. Under a service that divides
    its input, each reader of a part has its own unnamed store.

    Attributes:
        filename: a local path without the ending; pickled, because the place of the store is not
            part of the pipeline's structure.
        fingerprint: of the input.
    """

    kind: ClassVar[str] = "cache_file"
    one_to_one: ClassVar[bool] = True
    filename: Pickled
    fingerprint: Fingerprint

    def open(self, context: Context) -> Stream:
        path = f"{self.filename.value}.stoker"
        folder = Folder(path)
        if (reader := context.part_reader(self)) is not None:
            # The readers of parts have different elements, and a named store belongs to one
            # pipeline.
            folder = _unnamed_folder(self, reader, path)
        # The elements kept must not depend on which epoch was the first to be read whole.
        return LazyStream(lambda: self._open(replace(context, epoch=(0,)), folder))

    def _open(self, context: Context, folder: Folder) -> Stream:
        def read(found: Description) -> Stream:
            whole = context.whole()
            return StoredStream(whole, self, folder, found.files, self.element_spec())

        metadata = self.fingerprint.metadata(context)
        owner = f"cache({self.filename.value!r})"
        return read_or_write(self, context, folder, metadata=metadata, read=read, owner=owner)


_Folders = WeakKeyDictionary[Node, UnnamedFolder]
# Weak: an unnamed store is removed with the reader whose epochs read the store.
_by_splits: WeakKeyDictionary[SplitReader, _Folders] = WeakKeyDictionary()
_lock = threading.Lock()


def _unnamed_folder(node: Node, splits: SplitReader, path: str) -> UnnamedFolder:
    with _lock:
        folders = _by_splits.setdefault(splits, WeakKeyDictionary())
        return folders.setdefault(node, UnnamedFolder(path))
