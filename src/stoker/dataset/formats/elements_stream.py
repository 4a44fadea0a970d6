"""Reads a store's files as an index source."""

import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from stoker.dataset.formats.elements_file import ElementsFile
from stoker.dataset.formats.storage import Folder
from stoker.dataset.streams.source import IndexStream
from stoker.dataset.tree.node import Context, Node
from stoker.elements.codec.elements import TypeResolver
from stoker.elements.sizes import element_bytes
from stoker.elements.spec import Spec
from stoker.errors import DataLossError, NotFoundError


class StoredFile(msgspec.Struct, frozen=True):
    """An element file of a store: its name in the folder and its number of elements."""

    name: str
    count: int


class StoredStream(IndexStream):
    """The elements of files, file after file; a single record is in memory.

    A damaged record costs only its own positions: each raises DataLossError.

    Args:
        context: the context of the epoch.
        node: the source, if `context` assigns splits.
        folder: the store.
        files: the files to read.
        spec: names the classes of namedtuples and dataclasses, before the classes of `context`.
    """

    def __init__(
        self, context: Context, node: Node, folder: Folder, files: Sequence[StoredFile], spec: Spec
    ) -> None:
        self._firsts = [*accumulate((file.count for file in files), initial=0)]
        super().__init__(context, node, self._firsts[-1], 1, lambda _start, _stop: [])
        self._folder = folder
        self._files = files
        self._types = TypeResolver(spec, context.record_classes)
        self._file: ElementsFile | None = None
        self._file_number = -1
        self._record: list[Any] = []
        self._record_first = 0
        self._damage = ""
        self._damage_first = self._damage_stop = 0
        self._closed = False
        self._lock = threading.Lock()  # `close` may come from another thread

    def close(self) -> None:
        super().close()
        with self._lock:
            self._closed = True
            self._close_file()

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._position >= self._stop and not self._next_run():
            return []
        start = self._position - self._record_first
        if not 0 <= start < len(self._record):
            self._load()
            start = self._position - self._record_first
        fitting = max_bytes // self._element_bytes or 1
        count = min(max_elements, fitting, self._stop - self._position)
        if count <= 0:  # `close`, which may come from another thread, sets the stop to 0
            return []
        elements = self._record[start : start + count]
        self._position += len(elements)
        return elements

    def _load(self) -> None:
        """Decode the record that holds the next element; an error takes its position."""
        at = self._position
        self._position = at + 1  # before decoding: an error has the position of its element
        with self._lock:
            if not self._damage_first <= at < self._damage_stop:
                self._decode(at)
        if self._damage_first <= at < self._damage_stop:
            raise DataLossError(self._damage)
        self._position = at

    def _decode(self, at: int) -> None:
        if self._closed:
            return
        number = bisect_right(self._firsts, at) - 1
        first, stop = self._firsts[number : number + 2]  # lost if the file is damaged as a whole
        self._record = []
        try:
            file = self._open(number)
            record = file.record_at(at - first)
            first, stop = (first + file.firsts[record : record + 2]).tolist()
            self._record = file.read(record)
            self._record_first = first
            self._element_bytes = element_bytes(self._record[at - first])
        except DataLossError as error:
            self._damage, self._damage_first, self._damage_stop = str(error), first, stop

    def _open(self, number: int) -> ElementsFile:
        if self._file is None or self._file_number != number:
            self._close_file()
            expected = self._files[number]
            path = self._folder.join(expected.name)
            try:
                file = self._folder.open(expected.name)
            except FileNotFoundError as error:
                raise NotFoundError(
                    f"{path} was removed: the folder was deleted or written anew; load it again"
                ) from error
            opened = ElementsFile(file, path, self._types)
            if opened.count != expected.count:
                opened.close()
                raise DataLossError(
                    f"{path} has {opened.count} elements, but {expected.count} were written; "
                    "delete it and write it anew"
                )
            self._file, self._file_number = opened, number
        return self._file

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
