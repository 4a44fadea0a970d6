"""A local file that one writer at a time may hold, in whatever process or thread it is."""

import fcntl
import os
from contextlib import suppress
from typing import Any, BinaryIO


def claim(path: str) -> BinaryIO | None:
    """Creates the file if need be and locks it; ``None`` while another holds it.

    The system lets go of the lock when the holder dies, however it dies, so what is found in the
    file is nobody's: it may be overwritten.

    Raises:
        OSError: the file cannot be made or locked.
    """
    while True:
        # Nothing is held back in the process: a forked child would write it a second time.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        file: Any = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                return file  # type: ignore[no-any-return]
        except BlockingIOError:
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        file.close()  # removed or renamed by its holder in between: it is not the one at `path`


def release(file: BinaryIO) -> None:
    """Lets go of a claimed file and closes it; idempotent."""
    if not file.closed:
        # Explicitly: a forked child may have the same file open, and the lock with it.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
        file.close()


def _is_at(file: BinaryIO, path: str) -> bool:
    try:
        found = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file.fileno()))
