"""Object stores for tests, as file systems of fsspec: with faults, and on the local disk."""

import os
import threading
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem


class FaultyStore(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Objects in memory, each created atomically.

    Attributes:
        objects: contents by path, of all instances.
        before: called with the method and the path before it has an effect; may raise or wait.
        after: the same afterwards, before the answer: what it raises is a lost answer.
        conditional: whether `mode="create"` refuses an existing object.
    """

    protocol = "faulty"
    cachable = False
    objects: ClassVar[dict[str, bytes]] = {}
    lock = threading.Lock()
    before: ClassVar[Any]
    after: ClassVar[Any]
    conditional: ClassVar[bool] = True

    @classmethod
    def reset(cls) -> None:
        """Remove all objects and faults."""
        cls.objects.clear()
        cls.before = cls.after = staticmethod(lambda method, path: None)
        cls.conditional = True

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        self.before("create", path)
        with self.lock:
            if mode == "create" and self.conditional and path in self.objects:
                raise OSError(22, "PreconditionFailed")
            self.objects[path] = bytes(value)
        self.after("create", path)

    def cat_file(self, path: str, start=None, end=None, **kwargs: Any) -> bytes:
        path = self._strip_protocol(path)
        self.before("read", path)
        try:
            return self.objects[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        self.before("list", path)
        with self.lock:
            found = sorted(name for name in self.objects if name.startswith(f"{path}/"))
        if not found:
            raise FileNotFoundError(path)
        return [{"name": name} for name in found] if detail else found

    def rm_file(self, path: str) -> None:
        path = self._strip_protocol(path)
        self.before("delete", path)
        with self.lock:
            if self.objects.pop(path, None) is None:
                raise FileNotFoundError(path)


FaultyStore.reset()


class DirectoryStore(LocalFileSystem):  # type: ignore[misc]
    """Objects as local files, each created atomically by a link."""

    protocol = "directory"
    cachable = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        target = Path(self._strip_protocol(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"part-{os.urandom(8).hex()}")
        part = target.parent.parent / part.name
        part.write_bytes(value)
        try:
            os.link(part, target)
        finally:
            part.unlink()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("directory://").rstrip("/")


def register() -> None:
    """Make the stores known to fsspec."""
    fsspec.register_implementation("faulty", FaultyStore, clobber=True)
    fsspec.register_implementation("directory", DirectoryStore, clobber=True)
