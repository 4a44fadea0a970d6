"""records: the records of files of any format, file after file."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, ClassVar

from stoker.dataset.formats import counts
from stoker.dataset.formats.csv import Csv
from stoker.dataset.formats.fixed_length import FixedLength
from stoker.dataset.formats.opening import open_buffer
from stoker.dataset.formats.parts import MOST_FILES, FilePart, list_parts, open_part
from stoker.dataset.formats.reader import RecordReader
from stoker.dataset.formats.text import Text
from stoker.dataset.formats.tfrecord import TFRecord, load_crc32c
from stoker.dataset.nodes.files import EncodedNames, ListFiles
from stoker.dataset.nodes.prefetch import Prefetch
from stoker.dataset.nodes.shuffle import Shuffle
from stoker.dataset.streams.calls.task_calls import TaskCalls, recorded_unplaced
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.source import ListedStream
from stoker.dataset.streams.stream import READ_AHEAD_BYTES, READ_AHEAD_ELEMENTS, Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node
from stoker.dataset.tree.splits import IndexSplits, ListedSplits
from stoker.elements.sizes import element_bytes
from stoker.elements.spec import Spec
from stoker.errors import FailedPreconditionError, InvalidArgumentError


class Records(Node, frozen=True, eq=False, kw_only=True):
    """The records of each file that the input names, in order.

    An error occupies the position of its record. After an error that makes the rest of the file
    unreadable (a missing file, a corrupt length) reading continues with the next file.

    The splits of uncompressed files are parts of the files, if the names come from a source, in any
    order, and the format can be read from the middle of a file.

    Attributes:
        input: paths, or URLs for fsspec.
        format: the format of the files, with its options.
        compression: ``""``, ``"GZIP"`` or ``"ZLIB"``.
    """

    kind: ClassVar[str] = "records"
    input: Node
    format: Text | TFRecord | FixedLength | Csv
    compression: str = ""

    def element_spec(self) -> Spec:
        return self.format.element_spec()

    def cardinality(self) -> int:
        return 0 if self.input.cardinality() == 0 else UNKNOWN_CARDINALITY

    def splits(self) -> ListedSplits | None:
        if self.compression or isinstance(self.format, Csv) or not _is_list(self.input):
            return None
        return ListedSplits()

    def list_splits(self, context: Context) -> list[Any]:
        """Return the parts of the files; for a file that is read as a whole, its path.

        Raises:
            NotFoundError: if no file matches the patterns of `list_files`.
            InvalidArgumentError: if an element of the input is not a path.
        """
        assert not isinstance(self.format, Csv)
        with closing(open_stream(self.input, context)) as stream:
            paths = [_path_of(path) for path in _elements(stream)]
        return list_parts(paths, self.format)

    def open(self, context: Context) -> Stream:
        if isinstance(self.format, TFRecord):
            load_crc32c()  # one error instead of an error for each file
        if context.splits is None or self.splits() is None:
            return _RecordsStream(self, context.open(self.input), context.calls)
        splits = ListedStream(context, self, lambda: self.list_splits(context))
        return _RecordsStream(self, splits, context.calls, splits=True)


def _is_list(names: Node) -> bool:
    """Return whether a worker can list the names, and then read each name once."""
    while isinstance(names, Shuffle | Prefetch | EncodedNames):
        names = names.input
    if isinstance(names, ListFiles):
        return True
    # Ranges of more names than are cut are assigned with less effort than single names.
    indexed = not names.inputs and isinstance(names.splits(), IndexSplits)
    return indexed and 0 <= names.cardinality() <= MOST_FILES


def _elements(stream: Stream) -> Iterator[Any]:
    while chunk := stream.next_chunk(READ_AHEAD_ELEMENTS, READ_AHEAD_BYTES):
        yield from chunk


class _RecordsStream(Stream):
    """Reads file after file; any thread may call `close`, even during a read.

    Args:
        node: the node.
        files: paths, or splits.
        calls: as in `Context`.
        splits: `files` yields what `Records.list_splits` returns.
    """

    def __init__(
        self, node: Records, files: Stream, calls: TaskCalls | None, *, splits: bool = False
    ) -> None:
        self._node = node
        self._calls = calls
        self._files = files
        self._yields_parts = splits
        self._layout = (node.format, node.compression)
        self._reader: RecordReader | None = None
        self._version: counts.Version | None = None
        # Records and errors of this file that were read or skipped.
        self._file_positions = 0
        self._ready: Iterator[Any] = iter(())
        self._record_bytes = 1
        # Guards the use of the reader.
        self._lock = threading.Lock()
        self._closed = False

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        while True:
            room = max(1, min(max_elements, max_bytes // self._record_bytes))
            if chunk := list(islice(self._ready, room)):
                return chunk
            try:
                self._ready = iter(self._read())
            except StopIteration:
                return []

    def advance(self, n: int) -> int:
        left = n - sum(1 for _ in islice(self._ready, n))
        while left:
            try:
                left -= self._skip(left)
            except StopIteration:
                break
            except Exception:  # noqa: BLE001 - an error's position is skipped too
                left -= 1
        return n - left

    def close(self) -> None:
        # Set first: a thread that is reading sees the flag afterwards, and closes the file itself.
        self._closed = True
        self._ready = iter(())
        self._close_reader_if_closed()
        self._files.close()

    def _read(self) -> list[Any]:
        """Return the next records; raise StopIteration at the end, errors at their positions."""
        while True:
            if self._reader is None:
                self._open(*self._next_file())
            with recorded_unplaced(self._calls), self._using_reader() as reader:
                try:
                    records = reader.read()
                except Exception:
                    self._file_positions += 1
                    raise
            if records:
                self._file_positions += len(records)
                # Records of a file are of similar size: measure only the middle record.
                self._record_bytes = element_bytes(records[len(records) // 2])
                return records
            self._end_file()

    def _skip(self, n: int) -> int:
        """Skip at most `n` positions of a file; raise StopIteration after the last file."""
        if self._reader is None:
            file, version = self._next_file()
            if version is not None:
                # A file that an earlier epoch counted is skipped unopened, unless the file was
                # changed.
                count = counts.recorded(version, self._layout)
                if count is not None and count <= n:
                    return count
            self._open(file, version)
        with self._using_reader() as reader:
            skipped = reader.skip(n)
        self._file_positions += skipped
        if skipped < n:
            self._end_file()
        return skipped

    def _next_file(self) -> tuple[str | FilePart, counts.Version | None]:
        """Return the next file or part, and the version of a whole file."""
        self._check_open()
        found = self._files.next()
        if self._yields_parts and not isinstance(found, str):
            return FilePart(*found), None
        path = _path_of(found)
        return path, counts.version_of(path)

    def _open(self, file: str | FilePart, version: counts.Version | None) -> None:
        self._reader = _reader_of(file, self._node)
        # `close` may have been called while the file was opened.
        self._version = version
        self._file_positions = 0
        self._close_reader_if_closed()

    def _end_file(self) -> None:
        if self._version is not None:
            counts.record(self._version, self._layout, self._file_positions)
        with self._using_reader() as reader:
            reader.close()
            self._reader = None

    @contextmanager
    def _using_reader(self) -> Iterator[RecordReader]:
        try:
            with self._lock:
                self._check_open()
                assert self._reader is not None  # only `close` removes the reader
                yield self._reader
        finally:
            if self._closed:
                self._close_reader_if_closed()

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError("this iterator was closed while it was read")

    def _close_reader_if_closed(self) -> None:
        """Close the file, unless another thread is using the file, which then closes it."""
        if not self._closed or not self._lock.acquire(blocking=False):
            return
        try:
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.close()
        finally:
            self._lock.release()


def _reader_of(file: str | FilePart, node: Records) -> RecordReader:
    """Open a file, or a part of a file."""
    if isinstance(file, FilePart):
        assert not isinstance(node.format, Csv)
        return open_part(file, node.format)
    buffer = open_buffer(file, node.compression)
    try:
        return node.format.open(buffer)
    except BaseException:
        buffer.close()
        raise


def _path_of(element: Any) -> str:
    """Return the path in an element of the input.

    Raises:
        InvalidArgumentError: if the element is not a path.
    """
    try:
        return os.fsdecode(element)
    except TypeError as error:
        raise InvalidArgumentError(
            f"a dataset of filenames must yield paths; it yielded {element!r}, a value of type "
            f"{type(element).__qualname__}"
        ) from error
