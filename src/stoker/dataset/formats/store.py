"""Stores: folders of elements, written in an epoch by `cache(filename)`, `snapshot` or `save`.

    stoker.json               the `Description`, written last: without this file there is no store
    <run>-00000.elements      element files
    stoker.lock               locked by the writer of a local store

A store is complete or absent. Writing a store again replaces the description atomically, and
removes the files of the earlier description.
"""

import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from stoker.dataset.formats.elements_file import ElementsWriter
from stoker.dataset.formats.elements_stream import StoredFile
from stoker.dataset.formats.storage import Folder
from stoker.errors import DataLossError, FailedPreconditionError

VERSION = 1
# Without a `file_of` the next file is started when a file has this size.
FILE_BYTES = 256 << 20

_NAME = "stoker.json"
_FILE_NAME = "[0-9a-f]{12}-[0-9]+[.]elements"


class Description(msgspec.Struct, frozen=True):
    """Content of a store: files, element_spec in wire form, fingerprint of the pipeline."""

    files: tuple[StoredFile, ...]
    spec: Any
    metadata: dict[str, str]


class _Envelope(msgspec.Struct, frozen=True):
    """Content of ``stoker.json``; the checksum covers the version and the description."""

    version: int
    checksum: int
    description: msgspec.Raw


def read_description(folder: Folder) -> Description | None:
    """Return the description of a complete store; None if there is none.

    Raises:
        DataLossError: if the store is damaged.
        FailedPreconditionError: if a newer version of stoker wrote the store.
    """
    data = folder.read(_NAME)
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data, type=_Envelope)
        if zlib.crc32(found.description, found.version) != found.checksum:
            raise msgspec.DecodeError("its checksum differs")
        if found.version > VERSION:
            raise FailedPreconditionError(
                f"{folder.join(_NAME)} has version {found.version}; this stoker reads up to "
                f"{VERSION}; use a newer stoker, or delete the folder and write it anew"
            )
        return msgspec.json.decode(found.description, type=Description)
    except (msgspec.MsgspecError, OverflowError) as error:
        raise DataLossError(
            f"{folder.join(_NAME)} is damaged: {error}; delete the folder and write it anew"
        ) from error


class StoreBusyError(FailedPreconditionError):
    """Another writer has the store."""


class StoreWriter:
    """Writes a store.

    Args:
        folder: the store.
        spec: returns the element_spec in wire form; called after the last element.
        compression: as for `ElementsWriter`.
        metadata: the fingerprint of the pipeline.
        file_of: returns the number of the file for an element; ``None``: file after file.
        overwrite: whether to replace a store that another writer completed in between.

    Attributes:
        file_of: as given; a user function.

    Raises:
        StoreBusyError: if another writer has the folder (noticed for local paths only).
        OSError: if the folder cannot be written, from any method; names the folder.
    """

    def __init__(
        self,
        folder: Folder,
        spec: Callable[[], Any],
        compression: str,
        metadata: dict[str, str],
        file_of: Callable[[Any], int] | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        self._folder = folder
        self._run = os.urandom(6).hex()
        self._spec = spec
        self._compression = compression
        self._metadata = metadata
        self.file_of = file_of
        self._overwrite = overwrite
        self._open: dict[int, ElementsWriter] = {}
        self._files: dict[int, StoredFile] = {}
        self._done = False
        try:
            locked = folder.lock()
        except OSError as error:
            raise self._named(error) from error
        if not locked:
            raise StoreBusyError(
                f"another process or iterator is writing {folder.path} now; wait until it has "
                "finished, or name another folder"
            )
        published = {file.name for file in self._published()}
        # The lock is held here, so a file that is not published belongs to a writer that died.
        dead = [name for name in folder.list_locked() if re.fullmatch(_FILE_NAME, name)]
        folder.remove([name for name in dead if name not in published])

    def add(self, elements: list[Any]) -> None:
        """Append elements.

        Raises:
            InvalidArgumentError: if an element cannot be encoded.
        """
        if self.file_of is None:
            self._add_to(len(self._files), elements)
            return
        groups: dict[int, list[Any]] = {}
        for element in elements:
            groups.setdefault(self.file_of(element), []).append(element)
        for number, group in groups.items():
            self._add_to(number, group)

    def _add_to(self, number: int, elements: list[Any]) -> None:
        # No context manager: a call for each element of `save` took longer than the rest together.
        try:
            writer = self._open.get(number)
            if writer is None:
                file = self._folder.create(self._name_of(number))
                writer = self._open[number] = ElementsWriter(file, self._compression)
            writer.add(elements)
            if self.file_of is None and writer.nbytes >= FILE_BYTES:
                self._close_file(number)
        except OSError as error:
            raise self._named(error) from error

    def finish(self) -> None:
        """Publish the store; without `overwrite`, a store completed meanwhile stays."""
        earlier = self._published()
        if earlier and not self._overwrite:
            self.abandon()
            return
        try:
            for number in list(self._open):
                self._close_file(number)
            # The description is written last: a store without a description does not exist.
            files = tuple(self._files[number] for number in sorted(self._files))
            raw = msgspec.json.encode(Description(files, self._spec(), self._metadata))
            envelope = _Envelope(VERSION, zlib.crc32(raw, VERSION), msgspec.Raw(raw))
            self._folder.publish(_NAME, msgspec.json.encode(envelope))
        except OSError as error:
            raise self._named(error) from error
        self._done = True
        # Readers of the earlier store have its files open or get NotFoundError.
        self._folder.remove([file.name for file in earlier])
        self._folder.unlock()

    def abandon(self) -> None:
        """Remove the written files, unless published; idempotent."""
        if self._done:
            return
        self._done = True
        for writer in self._open.values():
            with suppress(OSError):
                writer.file.close()
        self._folder.remove([self._name_of(number) for number in [*self._open, *self._files]])
        self._folder.unlock()

    def _close_file(self, number: int) -> None:
        writer = self._open[number]
        writer.finish()
        self._folder.commit(writer.file)
        self._files[number] = StoredFile(self._name_of(number), writer.count)
        del self._open[number]

    def _name_of(self, number: int) -> str:
        return f"{self._run}-{number:05}.elements"

    def _named(self, error: OSError) -> OSError:
        what = f"{error.strerror or error}: what was written is removed"
        return OSError(error.errno or 0, what, self._folder.path)

    def _published(self) -> tuple[StoredFile, ...]:
        with suppress(DataLossError, FailedPreconditionError):
            if found := read_description(self._folder):
                return found.files
        return ()
