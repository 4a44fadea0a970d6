"""Writer of TFRecord files."""

import os
import zlib

from stoker.dataset.closing import Closing
from stoker.dataset.formats.opening import checked_compression, compressor, open_to_write
from stoker.dataset.formats.tfrecord import load_crc32c, masked
from stoker.errors import FailedPreconditionError, InvalidArgumentError


class TFRecordWriter(Closing):
    """Writes records to a new TFRecord file.

    Each record is stored with its length and checksums, so a partly written record (the disk is
    full, the process dies) is read as an error, never as a record. After a failed write the writer
    can only be closed. As `tf.io.TFRecordWriter`.

    Args:
        path: the file, which is replaced: a local path, or a URL with ``://`` for fsspec.
        compression_type: ``None`` or ``""``, ``"GZIP"`` or ``"ZLIB"``.

    Raises:
        InvalidArgumentError: if `compression_type` is none of these, or `path` is a folder.
        NotFoundError: if the folder of `path` does not exist.
        PermissionDeniedError: if the file may not be written.
        FailedPreconditionError: if google-crc32c is not installed.

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
        self._writable = True

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Append a record.

        Args:
            record: the bytes of the record.

        Raises:
            InvalidArgumentError: if `record` is not bytes, bytearray or memoryview.
            FailedPreconditionError: if the writer is closed, or an earlier write failed.
            OSError: if the record cannot be written.
        """
        if not isinstance(record, bytes | bytearray | memoryview):
            raise InvalidArgumentError(
                f"`record` must be bytes; got a {type(record).__qualname__}: {record!r}; encode "
                "text with .encode()"
            )
        data = bytes(record)
        length = len(data).to_bytes(8, "little")
        parts = (length, self._checksum(length), data, self._checksum(data))
        self._write(b"".join(parts))

    def flush(self) -> None:
        """Write all buffered records to the file. As `tf.io.TFRecordWriter.flush`.

        Raises:
            FailedPreconditionError: if the writer is closed, or an earlier write failed.
            OSError: if the records cannot be written.
        """
        self._write(b"", flush=True)

    def close(self) -> None:
        """Write all buffered records and close the file; idempotent.

        Raises:
            OSError: if the records cannot be written.
        """
        if self._file.closed:
            return
        try:
            if self._compressor is not None and self._writable:
                self._file.write(self._compressor.flush())
        finally:
            self._file.close()

    def _checksum(self, data: bytes) -> bytes:
        return masked(self._crc(data)).to_bytes(4, "little")

    def _write(self, data: bytes, *, flush: bool = False) -> None:
        if self._file.closed:
            raise FailedPreconditionError(f"the writer of {self._path} is closed")
        if not self._writable:
            raise FailedPreconditionError(
                f"an earlier write to {self._path} failed, so records after it could not be read; "
                "write the file again"
            )
        self._writable = False
        if self._compressor is not None:
            data = self._compressor.compress(data)
            if flush:
                data += self._compressor.flush(zlib.Z_SYNC_FLUSH)
        self._file.write(data)
        if flush:
            self._file.flush()
        self._writable = True
