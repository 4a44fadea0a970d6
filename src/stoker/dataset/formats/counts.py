"""How many records files have, as learnt by reading them: what lets a pass skip whole files."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

_MOST_FILES = 1 << 16

# A file changed a moment ago may be changed again within the tick of its clock, unseen.
_SETTLED_SECONDS = 2.0


class Version(NamedTuple):
    """A local file as it is now: another content has another version."""

    path: str
    size: int
    changed: int
    file: int


_counts: OrderedDict[tuple[Version, Hashable], int] = OrderedDict()
_lock = threading.Lock()


def version_of(path: str) -> Version | None:
    """The version of a local file; None if it is not local, not there or only just written."""
    if "://" in path:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    if time.time() - status.st_mtime < _SETTLED_SECONDS:
        return None
    return Version(os.path.abspath(path), status.st_size, status.st_mtime_ns, status.st_ino)  # noqa: PTH100


def recorded(version: Version, how: Hashable) -> int | None:
    """How many positions the file has when read so, if a pass of this process has counted them."""
    with _lock:
        return _counts.get((version, how))


def record(version: Version, how: Hashable, count: int) -> None:
    """Keep what a whole reading of the file counted."""
    with _lock:
        _counts[version, how] = count
        _counts.move_to_end((version, how))
        if len(_counts) > _MOST_FILES:
            _counts.popitem(last=False)
