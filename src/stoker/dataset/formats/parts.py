"""Parts of files: ranges of bytes that different workers read, each record in one part."""

import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from stoker.dataset.formats.opening import FileBuffer, open_buffer
from stoker.dataset.formats.reader import RecordReader
from stoker.dataset.formats.storage import is_url, open_file
from stoker.elements.spec import Spec, TensorSpec
from stoker.errors import DataLossError

# Small files are cut into 64 parts, 8 for each of 8 workers, of 4 to 256 KiB. Smaller parts take
# much longer to get than to read: reading lines in parts of 60 KB takes 1.2 times as long.
SMALL_PARTS, MIN_PART_BYTES, PART_BYTES = 64, 1 << 12, 1 << 18

# Large files are cut into 4,096 parts, for up to 512 workers, of at most 64 MiB, which are lost
# with a worker. In an object store, opening a part takes as long as reading some MB, and every part
# has 64 MiB.
MOST_PARTS, MAX_PART_BYTES = 1 << 12, 1 << 26

# More files than these are not cut: these are 8 for each of the 128 workers of a client.
MOST_FILES = 1 << 10

# A file that must be walked to be cut is cut if larger than this fraction of all bytes.
WALKED_SHARE = 16

# Requests in flight for the sizes of files in an object store.
_THREADS = 16


class FilePart(NamedTuple):
    """Bytes `start` to `stop` of the file at `path`, which had `size` bytes when listed.

    The records of a part depend on the format: a text line belongs to the part of its first byte.
    """

    path: str
    start: int
    stop: int
    size: int


class PartedFormat(msgspec.Struct, frozen=True):
    """A format of records of text or bytes, whose files can be read in parts.

    Attributes:
        walked: a file must be read to be cut.
    """

    walked: ClassVar[bool] = False

    def element_spec(self) -> Spec:
        """Return the spec of a record."""
        return TensorSpec((), np.dtype(object))

    def cut(self, path: str, size: int, part_bytes: int) -> list[int]:
        """Return where the parts of a file begin, and where the last part ends.

        Args:
            path: the file.
            size: its size.
            part_bytes: the most bytes of a part, unless a record is larger.
        """
        raise NotImplementedError

    def open(self, buffer: FileBuffer, start: int = 0, stop: int | None = None) -> RecordReader:
        """Return a reader of the file in `buffer`, or of the part that `cut` says."""
        raise NotImplementedError


def even_cuts(total: int, most: int) -> list[int]:
    """Return where ranges of at most `most` begin that divide `total` evenly, and its end.

    Example:
        >>> even_cuts(10, 4)
        [0, 3, 6, 10]
    """
    count = max(1, -(-total // most))
    return [total * i // count for i in range(count + 1)]


def part_bytes_of(total: int) -> int:
    """Return the size of the parts of local files of `total` bytes.

    The list does not depend on the number of workers.

    Example:
        >>> [part_bytes_of(10**n) for n in (5, 7, 9, 11, 13)]
        [4096, 156250, 262144, 24414062, 67108864]
    """
    small = max(MIN_PART_BYTES, min(total // SMALL_PARTS, PART_BYTES))
    return max(small, min(total // MOST_PARTS, MAX_PART_BYTES))


# Parts depend only on the files, never on the number of workers, so that any cluster reads the same
# parts. (docs/decisions/039)
def list_parts(paths: list[str], layout: PartedFormat) -> list[str | FilePart]:
    """Return the parts of uncompressed files in order; for a file that is not cut, its path."""
    if len(paths) > MOST_FILES:
        return list(paths)
    sizes = _sizes_of(paths, layout.walked)
    total = sum(sizes)
    part_bytes = part_bytes_of(total)
    uncut = total // WALKED_SHARE if layout.walked else 0
    parts: list[str | FilePart] = []
    for path, size in zip(paths, sizes, strict=True):
        most = MAX_PART_BYTES if is_url(path) else part_bytes
        parts += _cut(path, size, most, layout) if size > max(most, uncut) else [path]
    return parts


def open_part(part: FilePart, layout: PartedFormat) -> RecordReader:
    """Open a file and return a reader of a part.

    Raises:
        DataLossError: if the size of the file has changed since the listing.
        StokerError: as of `open_buffer`.
    """
    buffer = open_buffer(part.path, "")
    try:
        if buffer.size != part.size:
            raise DataLossError(
                f"{part.path} has changed: it had {part.size} bytes when its parts were listed, "
                f"and has {buffer.size} now, so its bytes {part.start} to {part.stop} are not "
                "read; do not write to files while they are read"
            )
        return layout.open(buffer, part.start, part.stop)
    except BaseException:
        buffer.close()
        raise


def _cut(path: str, size: int, part_bytes: int, layout: PartedFormat) -> Sequence[str | FilePart]:
    cuts = layout.cut(path, size, part_bytes)
    if len(cuts) == 2:
        return [path]
    return [FilePart(path, start, stop, size) for start, stop in pairwise(cuts)]


def _sizes_of(paths: Sequence[str], walked: bool) -> list[int]:
    """Return the sizes of the files; 0 for a file that cannot be cut, or not be read."""
    if not any(map(is_url, paths)):
        return [_local_size(path) for path in paths]
    with ThreadPoolExecutor(_THREADS, "stoker-sizes") as pool:
        return list(pool.map(lambda path: _size(path, walked), paths))


def _size(path: str, walked: bool) -> int:
    if not is_url(path):
        return _local_size(path)
    # To walk a file takes a request for each record or block. A chain of file systems, such as
    # "simplecache::s3://", copies the whole file for each of its readers.
    if walked or "::" in path:
        return 0
    try:
        with open_file(path, "rb") as file:
            size: Any = getattr(file, "size", None)
            return size if isinstance(size, int) and file.seekable() else 0
    except Exception:  # noqa: BLE001 - of any file system; reading the file raises the error
        return 0


def _local_size(path: str) -> int:
    try:
        status = Path(path).stat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
