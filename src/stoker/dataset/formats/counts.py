"""Record counts of files that this process has read, with which streams skip whole files."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

_MAX_FILES = 1 << 16

# A file changed more recently may change again within a tick of the file system's clock, with
# the same version.
_SETTLED_SECONDS = 2.0


class Version(NamedTuple):
    """A local file's path, size, modification time and inode, which differ for new content."""

    path: str
    size: int
    modified_ns: int
    inode: int


_counts: OrderedDict[tuple[Version, Hashable], int] = OrderedDict()
_lock = threading.Lock()


def version_of(path: str) -> Version | None:
    """Return the version of a file; None for a file that is not local, missing or just modified."""
    if "://" in path:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    if time.time() - status.st_mtime < _SETTLED_SECONDS:
        return None
    return Version(os.path.abspath(path), status.st_size, status.st_mtime_ns, status.st_ino)  # noqa: PTH100


def recorded(version: Version, layout: Hashable) -> int | None:
    """Return the count of records and errors of a file in this layout, if read to the end."""
    with _lock:
        return _counts.get((version, layout))


def record(version: Version, layout: Hashable, count: int) -> None:
    """Remember the count of a file's records and errors; the oldest counts are forgotten."""
    with _lock:
        _counts[version, layout] = count
        _counts.move_to_end((version, layout))
        if len(_counts) > _MAX_FILES:
            _counts.popitem(last=False)
