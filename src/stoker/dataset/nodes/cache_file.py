"""cache(filename): the first whole pass is kept in a file, for later processes too."""

import os
import threading
import weakref
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar
from weakref import WeakKeyDictionary

from stoker.dataset.fingerprint import Identity, check_same
from stoker.dataset.formats.elements_file import ElementsFile, ElementsWriter
from stoker.dataset.formats.elements_stream import ElementFilesStream
from stoker.dataset.formats.locks import claim, release
from stoker.dataset.formats.naming import named, naming
from stoker.dataset.pickled import Pickled
from stoker.dataset.streams.caching import LazyStream, Record, recorded
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.dataset.tree.splits import SplitReader
from stoker.elements.codec.elements import TypeResolver
from stoker.elements.spec import Spec

_NOTHING_KEPT = "nothing is kept of this pass"


class CacheFile(Node, frozen=True, eq=False, kw_only=True):
    """Keeps the elements of the first pass that was read, not skipped, to its end without an error.

    The file is ``<filename>.stoker``; while it is written it is ``<filename>.stoker.part``, locked,
    and renamed at the end. Who finds it locked reads through. Where a service hands out splits,
    what is kept belongs to that hand-out alone: a file without a name, gone with it.

    Attributes:
        input: what it reads.
        filename: a local path, without the ending; opaque, because where elements are kept is not
            what the pipeline is.
        identity: of the input.
    """

    kind: ClassVar[str] = "cache_file"
    input: Node
    filename: Pickled
    identity: Identity

    def element_spec(self) -> Spec:
        return self.input.element_spec()

    def cardinality(self) -> int:
        return self.input.cardinality()

    def inputs_per_element(self) -> int:
        return 1

    def open(self, context: Context) -> Stream:
        # What is kept must not depend on which pass was the first to be read whole.
        first = replace(context, epoch=(0,))
        if context.splits is not None:
            kept = _kept_for(self, context.splits)
            return LazyStream(lambda: self._open_for_hand_out(first, kept))
        return LazyStream(lambda: self._open(first))

    def _open(self, context: Context) -> Stream:
        path = f"{self.filename.value}.stoker"
        about = self.identity.about(context)
        kept = _open_kept(path)
        if kept is None:
            folder = Path(path).parent
            with naming(path, _NOTHING_KEPT):
                folder.mkdir(parents=True, exist_ok=True)
                part = claim(path + ".part")
            if part is None:
                return self.input.open(context)
            record = _FileRecord(part, path, about)
            kept = _open_kept(path)  # another may have finished it before we had the lock
            if kept is None:
                return self._record(context, record)
            record.abandon()
        return self._read(kept, path, about)

    def _open_for_hand_out(self, context: Context, kept: "_Kept") -> Stream:
        import tempfile

        path = f"{self.filename.value}.stoker (unnamed)"
        if kept.file is not None:
            return self._read(kept.file, path, {}, kept.lock)
        folder = Path(path).parent
        with naming(path, _NOTHING_KEPT):
            folder.mkdir(parents=True, exist_ok=True)
            file: Any = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        return self._record(context, _UnnamedRecord(file, path, kept))

    def _record(self, context: Context, record: Record) -> Stream:
        keeper = f"`cache({self.filename.value!r})` ({self.site})"
        return recorded(lambda: self.input.open(context), record, keeper)

    def _read(
        self,
        file: BinaryIO,
        path: str,
        about: dict[str, str],
        lock: AbstractContextManager[Any] | None = None,
    ) -> Stream:
        try:
            opened = ElementsFile(file, path, TypeResolver(self.element_spec()), lock)
            check_same(opened.header.about, about, path)
        except BaseException:
            if lock is None:
                file.close()
            raise
        return ElementFilesStream([opened.count], lambda _: opened, opened=opened)


def _open_kept(path: str) -> BinaryIO | None:
    try:
        return Path(path).open("rb", buffering=0)
    except FileNotFoundError:
        return None


class _FileRecord:
    """A claimed file that gets its name when it is complete."""

    def __init__(self, part: BinaryIO, path: str, about: dict[str, str]) -> None:
        self._part = part
        self._path = path
        self._open = True
        try:
            with naming(path, _NOTHING_KEPT):
                part.truncate(0)  # of one who died
                self._writer = ElementsWriter(part, about=about)
        except BaseException:
            self.abandon()
            raise

    def add(self, elements: list[Any]) -> None:
        try:
            self._writer.add(elements)
        except OSError as error:
            raise named(error, self._path, _NOTHING_KEPT) from error

    def finish(self) -> None:
        with naming(self._path, _NOTHING_KEPT):
            self._writer.finish()
            os.fsync(self._part.fileno())
            os.replace(self._path + ".part", self._path)  # noqa: PTH105
        self._open = False
        release(self._part)

    def abandon(self) -> None:
        if self._open:
            self._open = False
            with suppress(OSError):
                os.unlink(self._path + ".part")  # noqa: PTH108
            release(self._part)


class _Kept:
    """What one hand-out's first whole pass read; no file until there was one."""

    def __init__(self) -> None:
        self.file: BinaryIO | None = None
        self.lock = threading.Lock()


class _UnnamedRecord:
    """A file that only its hand-out knows of, and the system removes with it."""

    def __init__(self, file: BinaryIO, path: str, kept: _Kept) -> None:
        self._file: BinaryIO | None = file
        self._path = path
        self._kept = kept
        try:
            with naming(path, _NOTHING_KEPT):
                self._writer = ElementsWriter(file)
        except BaseException:
            self.abandon()
            raise

    def add(self, elements: list[Any]) -> None:
        try:
            self._writer.add(elements)
        except OSError as error:
            raise named(error, self._path, _NOTHING_KEPT) from error

    def finish(self) -> None:
        with naming(self._path, _NOTHING_KEPT):
            self._writer.finish()
        with self._kept.lock:
            if self._kept.file is None and self._file is not None:
                self._kept.file, self._file = self._file, None
                weakref.finalize(self._kept, self._kept.file.close)

    def abandon(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


_by_splits: WeakKeyDictionary[SplitReader, WeakKeyDictionary[Node, _Kept]] = WeakKeyDictionary()
_lock = threading.Lock()


def _kept_for(node: Node, splits: SplitReader) -> _Kept:
    with _lock:
        of_nodes = _by_splits.setdefault(splits, WeakKeyDictionary())
        return of_nodes.setdefault(node, _Kept())
