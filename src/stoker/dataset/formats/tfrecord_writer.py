"""The writer of TFRecord files."""

import os
import zlib
from types import TracebackType

from stoker.dataset.formats.checksum import load_crc32c, masked
from stoker.dataset.formats.opening import checked_compression, compressor, open_to_write
from stoker.errors import FailedPreconditionError, InvalidArgumentError


class TFRecordWriter:
    """Writes records to a new TFRecord file; as tf.io.TFRecordWriter.

    Each record carries its length and checksums, so that one that was written in part (the disk
    is full, the process dies) is read as an error, never as a record. After a write that failed
    the writer only closes.

    Args:
        path: of the file, replaced if it exists: a local path, or a URL with ``://`` for fsspec.
        compression_type: ``None`` or ``""``, ``"GZIP"`` or ``"ZLIB"``.

    Raises:
        InvalidArgumentError: the compression is unknown, or the path is a folder.
        NotFoundError: the path's folder does not exist.
        PermissionDeniedError: the file may not be written.
        FailedPreconditionError: google-crc32c is not installed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "words.tfrecord")
        ...     with TFRecordWriter(path) as writer:
        ...         for word in (b"one", b"two"):
        ...             writer.write(word)
        ...     list(stoker.Dataset.tfrecords(path))
        [b'one', b'two']
    """

    def __init__(self, path: str | os.PathLike[str], compression_type: str | None = None) -> None:
        compression = checked_compression(compression_type)
        self._path = os.fsdecode(path)
        self._crc = load_crc32c()
        self._compressor = compressor(compression)
        self._file = open_to_write(self._path)
        self._sound = True

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Adds a record.

        Args:
            record: its bytes.

        Raises:
            InvalidArgumentError: `record` is no bytes.
            FailedPreconditionError: the writer is closed, or an earlier write failed.
            OSError: the record cannot be written.
        """
        if not isinstance(record, bytes | bytearray | memoryview):
            raise InvalidArgumentError(
                f"a record must be bytes; got a {type(record).__qualname__}: {record!r}; encode "
                "text with .encode()"
            )
        data = bytes(record)
        length = len(data).to_bytes(8, "little")
        parts = (length, self._checksum(length), data, self._checksum(data))
        self._write(b"".join(parts))

    def flush(self) -> None:
        """Hands what was written to the system; as tf.io.TFRecordWriter.flush.

        Raises:
            FailedPreconditionError: the writer is closed, or an earlier write failed.
            OSError: it cannot be written.
        """
        self._write(b"", flush=True)

    def close(self) -> None:
        """Ends the file and closes it; idempotent.

        Raises:
            OSError: what was left cannot be written.
        """
        if self._file.closed:
            return
        try:
            if self._compressor is not None and self._sound:
                self._file.write(self._compressor.flush())
        finally:
            self._file.close()

    def __enter__(self) -> "TFRecordWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _checksum(self, data: bytes) -> bytes:
        return masked(self._crc(data)).to_bytes(4, "little")

    def _write(self, data: bytes, *, flush: bool = False) -> None:
        if self._file.closed:
            raise FailedPreconditionError(f"the writer of {self._path} is closed")
        if not self._sound:
            raise FailedPreconditionError(
                f"an earlier write to {self._path} failed, and what follows could not be read; "
                "write the file anew"
            )
        self._sound = False
        if self._compressor is not None:
            data = self._compressor.compress(data)
            if flush:
                data += self._compressor.flush(zlib.Z_SYNC_FLUSH)
        self._file.write(data)
        if flush:
            self._file.flush()
        self._sound = True
