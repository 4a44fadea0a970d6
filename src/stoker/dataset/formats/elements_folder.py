"""Folders of element files: complete when their description is there, which is written last.

    <path>/stoker.json            the description: `Description`
    <path>/<run>/00000.elements   the files of the pass that wrote them

A folder is a local path or a URL that fsspec writes. Written anew, the description is replaced at
one blow and what the earlier one named is removed.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from stoker.dataset.formats.elements_file import ElementsFile, ElementsWriter
from stoker.dataset.formats.locks import claim, release
from stoker.dataset.formats.naming import named, naming
from stoker.elements.codec.elements import TypeResolver
from stoker.errors import DataLossError, FailedPreconditionError, NotFoundError

VERSION = 1
FILE_BYTES = 256 << 20
"""Without a function that says which, the next file is begun when one holds so much."""

_NAME = "stoker.json"
_LOCK = "stoker.lock"

_REMOVED = "what was written of this pass is removed"


class ElementsPart(msgspec.Struct, frozen=True):
    """One file of a folder: its path below the folder, and how many elements it holds."""

    name: str
    count: int


class Description(msgspec.Struct, frozen=True):
    """What a folder holds; `spec` is the element_spec in wire form, `about` whose elements."""

    version: int
    run: str
    files: list[ElementsPart]
    spec: Any
    about: dict[str, str] = {}


class FolderBusyError(FailedPreconditionError):
    """Another writer has the folder."""


def read_description(path: str) -> Description | None:
    """The description of a complete folder; ``None`` if there is none.

    Raises:
        DataLossError: it cannot be understood.
        FailedPreconditionError: a newer version of stoker wrote it.
        OSError: it cannot be read.
    """
    name = _join(path, _NAME)
    try:
        with _open(name) as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        version: int = msgspec.json.decode(data)["version"]
        if version > VERSION:
            raise FailedPreconditionError(
                f"{name} is of version {version}; this stoker reads up to {VERSION}; use a newer "
                "stoker, or write the folder anew"
            )
        return msgspec.json.decode(data, type=Description)
    except (msgspec.MsgspecError, TypeError, KeyError) as error:
        raise DataLossError(
            f"{name} is damaged: {error}; delete the folder and write it anew"
        ) from error


def open_part(path: str, part: ElementsPart, types: TypeResolver) -> ElementsFile:
    """Opens one file of a folder.

    Raises:
        NotFoundError: it is not there: the folder has been written anew or deleted.
        DataLossError: it is damaged.
    """
    name = _join(path, part.name)
    try:
        file = _open(name)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{name} is gone: the folder was deleted or written anew; load it again"
        ) from error
    try:
        return ElementsFile(file, name, types)
    except BaseException:
        file.close()
        raise


class FolderWriter:
    """Writes a folder: a `stoker.dataset.streams.caching.Record`.

    Args:
        path: the folder.
        spec: gives the element_spec in wire form, when all is added.
        compression: as for `ElementsWriter`.
        about: for `Description.about`.
        file_of: the number of the file an element belongs in; ``None``: one after the other.
        overwrite: whether to take the place of what was finished before this, or to give way.

    Raises:
        FolderBusyError: another writes it now (noticed for local paths only).
        OSError: it cannot be written; names it.
    """

    def __init__(
        self,
        path: str,
        spec: Callable[[], Any],
        compression: str,
        about: dict[str, str],
        file_of: Callable[[Any], int] | None,
        *,
        overwrite: bool,
    ) -> None:
        self._path = path
        self._run = os.urandom(6).hex()
        self._spec = spec
        self._compression = compression
        self._about = about
        self._file_of = file_of
        self._overwrite = overwrite
        self._writers: dict[int, tuple[ElementsWriter, BinaryIO]] = {}
        self._counts: dict[int, int] = {}
        self._done = False
        self._lock: BinaryIO | None = None
        if not _is_url(path):
            with naming(path, _REMOVED):
                Path(path).mkdir(parents=True, exist_ok=True)
                self._lock = claim(_join(path, _LOCK))
            if self._lock is None:
                raise FolderBusyError(f"another process or iterator is writing {path} now")
            self._remove_runs(except_for=self._published())  # of writers that died

    def add(self, elements: list[Any]) -> None:
        """Adds elements at the end.

        Raises:
            InvalidArgumentError: an element cannot be encoded.
            OSError: the folder cannot be written; names it.
        """
        groups: dict[int, list[Any]] = {}
        if self._file_of is None:
            groups[len(self._counts) - len(self._writers)] = elements
        else:
            for element in elements:
                groups.setdefault(self._file_of(element), []).append(element)
        try:
            for number, group in groups.items():
                self._writer(number).add(group)
            if self._file_of is None:
                self._close_if_large()
        except OSError as error:
            raise named(error, self._path, _REMOVED) from error

    def _close_if_large(self) -> None:
        """The next element begins another file."""
        number = len(self._counts) - 1
        if self._writers[number][0].nbytes >= FILE_BYTES:
            self._close_file(number)

    def finish(self) -> None:
        """Publishes, unless another is to stay: from here on the folder is this one's.

        Raises:
            OSError: the folder cannot be written; names it.
        """
        before = self._published()
        if before is not None and not self._overwrite:
            self.abandon()
            return
        with naming(self._path, _REMOVED):
            for number in list(self._writers):
                self._close_file(number)
            files = [
                ElementsPart(self._name_of(number), self._counts[number])
                for number in sorted(self._counts)
            ]
            description = Description(VERSION, self._run, files, self._spec(), self._about)
            _replace(_join(self._path, _NAME), msgspec.json.encode(description))
        self._done = True
        if before is not None:
            _remove_tree(_join(self._path, before))
        self._unlock()

    def abandon(self) -> None:
        """Removes what was written, unless it was published; idempotent."""
        if self._done:
            return
        self._done = True
        for _, file in self._writers.values():
            with suppress(OSError):
                file.close()
        self._writers.clear()
        _remove_tree(_join(self._path, self._run))
        self._unlock()

    def _writer(self, number: int) -> ElementsWriter:
        if number not in self._writers:
            file = _create(_join(self._path, self._name_of(number)))
            try:
                writer = ElementsWriter(file, self._compression, self._about)
            except BaseException:
                file.close()
                raise
            self._writers[number] = writer, file
            self._counts[number] = 0
        return self._writers[number][0]

    def _close_file(self, number: int) -> None:
        writer, file = self._writers[number]
        writer.finish()
        if not _is_url(self._path):
            os.fsync(file.fileno())
        del self._writers[number]
        file.close()
        self._counts[number] = writer.positions

    def _name_of(self, number: int) -> str:
        return f"{self._run}/{number:05}.elements"

    def _published(self) -> str | None:
        try:
            description = read_description(self._path)
        except (DataLossError, FailedPreconditionError):
            return None
        return None if description is None else description.run

    def _remove_runs(self, except_for: str | None) -> None:
        import shutil

        for folder in Path(self._path).iterdir():
            is_run = re.fullmatch("[0-9a-f]{12}", folder.name) and folder.name != except_for
            if is_run and any(folder.glob("*.elements")):
                shutil.rmtree(folder, ignore_errors=True)

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                Path(_join(self._path, _LOCK)).unlink()
            release(lock)


def _is_url(path: str) -> bool:
    return "://" in path


def _join(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _system_of(path: str) -> tuple[Any, str]:
    import fsspec

    system, name = fsspec.core.url_to_fs(path)
    return system, name


def _open(name: str) -> Any:
    if not _is_url(name):
        return Path(name).open("rb", buffering=0)
    system, inner = _system_of(name)
    return system.open(inner, "rb")


def _create(name: str) -> Any:
    if not _is_url(name):
        Path(name).parent.mkdir(exist_ok=True)
        # Nothing is held back in the process: a forked child would write it a second time.
        return Path(name).open("xb", buffering=0)
    system, inner = _system_of(name)
    system.makedirs(inner.rpartition("/")[0], exist_ok=True)
    return system.open(inner, "wb")


def _replace(name: str, data: bytes) -> None:
    """The file is as before or has this content, whatever happens."""
    if _is_url(name):
        system, inner = _system_of(name)
        system.makedirs(inner.rpartition("/")[0], exist_ok=True)
        system.pipe_file(inner, data)
        return
    part = f"{name}.part"
    with Path(part).open("wb", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())
    os.replace(part, name)  # noqa: PTH105


def _remove_tree(path: str) -> None:
    if not _is_url(path):
        import shutil

        shutil.rmtree(path, ignore_errors=True)
        return
    system, inner = _system_of(path)
    with suppress(OSError):
        system.rm(inner, recursive=True)
