"""Local files and URLs that fsspec opens: the same calls open, list, lock, publish and remove."""

import fcntl
import glob
import io
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from stoker.errors import FailedPreconditionError, InvalidArgumentError

_LOCK = "stoker.lock"


def is_url(path: str) -> bool:
    """Return whether fsspec opens `path`."""
    return "://" in path


def open_file(path: str, mode: str, buffering: int = 0) -> Any:
    """Open a file; `buffering` is for local ones, as in `open`.

    Raises:
        FailedPreconditionError: if the package for such URLs is not installed.
        InvalidArgumentError: if fsspec does not know the URL's protocol.
        OSError: if the file cannot be opened.
    """
    if not is_url(path):
        return open(path, mode, buffering)  # noqa: PTH123 - Path.open takes 8 us more
    system, name = system_of(path)
    return system.open(name, mode)


def list_paths(pattern: str) -> list[str]:
    """Return the paths that match a glob pattern, in any order; raises as `open_file`."""
    if not is_url(pattern):
        # Not Path.glob: patterns may be absolute, and the results keep the user's spelling.
        return glob.glob(pattern, recursive=True)  # noqa: PTH207
    system, name = system_of(pattern)
    return [system.unstrip_protocol(found) for found in system.glob(name)]


def system_of(url: str) -> tuple[Any, str]:
    """Return the file system of fsspec for `url`, and the path there; raises as `open_file`."""
    import fsspec

    try:
        system, name = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise FailedPreconditionError(
            f"{url} needs a package that is not installed here: {error}"
        ) from error
    except ValueError as error:
        raise InvalidArgumentError(f"{url} cannot be opened: {error}") from error
    return system, name


class Folder:
    """A local folder with a single writer at a time; its methods raise OSError.

    Attributes:
        path: the folder, for messages too.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock: BinaryIO | None = None

    def join(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return f"{self.path.rstrip('/')}/{name}"

    def lock(self) -> bool:
        """Create and lock the folder; return False while another process or object holds the lock.

        The system releases the lock when its holder dies.
        """
        while True:
            Path(self.path).mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # its holder removed file or folder: try again
                file = open_file(self.join(_LOCK), "ab")
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.path.samestat(os.stat(self.join(_LOCK)), os.fstat(file.fileno())):  # noqa: PTH116
                        self._lock = file
                        return True
                except BlockingIOError:
                    return False
                finally:
                    if self._lock is None:
                        file.close()

    def unlock(self) -> None:
        """Release the lock and remove an empty folder; idempotent."""
        file, self._lock = self._lock, None
        if file is None:
            return
        with suppress(OSError):
            Path(self.join(_LOCK)).unlink()
            Path(self.path).rmdir()
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # a forked child may have the same file open
        file.close()

    def list_locked(self) -> list[str]:
        """Return the names of the files that no further writer may be writing."""
        return os.listdir(self.path) if self._lock else []  # noqa: PTH208

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        file: BinaryIO = open_file(self.join(name), "rb")
        return file

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is no such file."""
        try:
            with self.open(name) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, name: str) -> BinaryIO:
        """Create a file; without a buffer, which a forked child would write again."""
        file: BinaryIO = open_file(self.join(name), "wb")
        return file

    def commit(self, file: BinaryIO) -> None:
        """Make a created file durable, and close the file."""
        with file:
            if isinstance(file, io.FileIO):
                os.fsync(file.fileno())

    def publish(self, name: str, data: bytes) -> None:
        """Create or replace a file atomically."""
        part = f"{name}.part"
        try:
            with open_file(self.join(part), "wb", buffering=-1) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self.join(part), self.join(name))  # noqa: PTH105
        except BaseException:
            self.remove([part])
            raise

    def remove(self, names: list[str]) -> None:
        """Remove files; files that the system does not remove stay."""
        for name in names:
            with suppress(OSError):
                Path(self.join(name)).unlink()


class UrlFolder(Folder):
    """A folder in a file system of fsspec, without locks: several writers may write."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._system, self._inner = system_of(path)

    def lock(self) -> bool:
        self._system.makedirs(self._inner, exist_ok=True)
        return True

    def publish(self, name: str, data: bytes) -> None:
        self._system.pipe_file(f"{self._inner}/{name}", data)

    def remove(self, names: list[str]) -> None:
        for name in names:
            with suppress(OSError):
                self._system.rm_file(f"{self._inner}/{name}")


class UnnamedFolder(Folder):
    """Unnamed files beside `path`, which the system removes with this object or its process."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} (unnamed)")
        self._parent = Path(path).parent
        self._files: dict[str, BinaryIO] = {}
        self._published: dict[str, bytes] = {}
        weakref.finalize(self, _close_all, self._files)

    def lock(self) -> bool:
        self._parent.mkdir(parents=True, exist_ok=True)
        return True

    def open(self, name: str) -> BinaryIO:
        return os.fdopen(os.dup(self._files[name].fileno()), "rb", buffering=0)

    def read(self, name: str) -> bytes | None:
        return self._published.get(name)

    def create(self, name: str) -> BinaryIO:
        import tempfile

        file: Any = tempfile.TemporaryFile(dir=self._parent, buffering=0)  # noqa: SIM115
        self._files[name] = file
        return self._files[name]

    def commit(self, file: BinaryIO) -> None:
        pass

    def publish(self, name: str, data: bytes) -> None:
        self._published[name] = data

    def remove(self, names: list[str]) -> None:
        for name in names:
            self._files.pop(name).close()


def _close_all(files: dict[str, BinaryIO]) -> None:
    for file in files.values():
        file.close()


def folder_at(path: str) -> Folder:
    """Return the folder at a local path or a URL."""
    return UrlFolder(path) if is_url(path) else Folder(path)
