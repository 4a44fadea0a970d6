"""Immutable objects in a folder of an object store, through fsspec.

An object is created only if its name is free (`mode="create"`: If-None-Match of S3, since s3fs
2024.12; ifGenerationMatch=0 of Google Cloud Storage, since gcsfs 2024.10).
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from stoker.dataset.formats.storage import system_of
from stoker.errors import (
    InvalidConfigError,
    NotFoundError,
    PermissionDeniedError,
    StokerError,
    UnavailableError,
)
from stoker.service.process.clock import Clock

RETRY_SECONDS = 60.0
"""A failed operation is repeated for this long."""
_CALL_SECONDS = 20.0  # a call that hangs is repeated, too
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 5.0
_CONCURRENT = 32  # requests: a bucket answers each in 50 to 300 ms

_PERMANENT = (
    PermissionError,
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    NotImplementedError,
    ImportError,
    TypeError,
    ValueError,
    AttributeError,
)

_logger = logging.getLogger("stoker")

Result = TypeVar("Result")


class Objects:
    """Objects in the folder at `url`; every method but `exists` repeats what fails for a while.

    Raises:
        FailedPreconditionError: if the package for such URLs is not installed.
        InvalidArgumentError: if fsspec does not know the URL's protocol.
        PermissionDeniedError, NotFoundError, UnavailableError: from any method.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        self._clock = clock
        self.url = url
        self._system, path = system_of(url)
        self._path = path.rstrip("/")

    def names(self) -> list[str]:
        """Return the names of all objects."""
        return self._repeat(self._names, "list")

    def read(self, names: Sequence[str]) -> Iterator[bytes | None]:
        """Yield the contents of objects, None for those that do not exist."""
        for start in range(0, len(names), _CONCURRENT):
            some = names[start : start + _CONCURRENT]
            found: dict[str, bytes | None] = {}
            self._repeat(functools.partial(self._read_missing, some, found), "read")
            yield from map(found.__getitem__, some)

    def create(self, name: str, data: bytes) -> bytes | None:
        """Create an object; return None, or the content of another one with this name.

        An object with the same content counts as created: it was, and the answer was lost.
        """
        return self._repeat(lambda: self._create(name, data), "write")

    def exists(self, name: str) -> bool:
        """Return whether an object exists; False while the store cannot be reached."""
        # Not repeated: the caller is idle and checks again after 10 s.
        try:
            return self._read(name) is not None
        except Exception as error:  # noqa: BLE001 - stores raise exceptions of their own
            _logger.warning("%s cannot be read: %s", self.url, _text(error))
            return False

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; those that cannot be deleted stay, with a warning."""
        failed = []
        for start in range(0, len(names), _CONCURRENT):
            some = names[start : start + _CONCURRENT]
            results = self._call_all("rm_file", some)
            failed += [error for error in results if isinstance(error, Exception)]
        failed = [error for error in failed if not isinstance(error, FileNotFoundError)]
        if failed:
            _logger.warning(
                "%d objects in %s cannot be deleted; the next compaction tries again: %s",
                len(failed),
                self.url,
                _text(failed[0]),
            )

    def check_conditional(self, name: str) -> None:
        """Create `name` twice; the store is unsuitable unless it refuses the second one.

        Raises:
            InvalidConfigError: if objects are not created conditionally and atomically.
        """
        from fsspec import AbstractFileSystem

        kind = type(self._system)
        try:
            # The default of fsspec looks first and writes then: two dispatchers may do both.
            atomic = kind.async_impl or kind.pipe_file is not AbstractFileSystem.pipe_file
            if atomic:
                self.create(name, b"1")
                atomic = self.create(name, b"2") == b"1"
                self.delete([name])
        except UnavailableError as error:
            if not isinstance(error.__cause__, TypeError | NotImplementedError):
                raise
            atomic = False
        if not atomic:
            raise InvalidConfigError(
                f"{self.url} cannot keep a journal: {kind.__name__} of {kind.__module__} does not "
                "create objects conditionally, which keeps a second dispatcher out; use S3 with "
                "s3fs 2024.12 or newer, Google Cloud Storage with gcsfs 2024.10 or newer, or a "
                "local `work_dir`"
            )

    def _names(self) -> list[str]:
        # fsspec keeps listings, but other dispatchers create and delete objects.
        self._system.invalidate_cache(self._path)
        try:
            found = self._call("ls", self._path, detail=False)
        except FileNotFoundError:
            return []
        names = [path.rstrip("/").rpartition("/")[2] for path in found if path != self._path]
        return [name for name in names if name]

    def _read_missing(self, names: Sequence[str], found: dict[str, bytes | None]) -> None:
        """Add the contents that are not in `found` yet; raise an error of those that failed."""
        missing = [name for name in names if name not in found]
        errors = []
        for name, result in zip(missing, self._call_all("cat_file", missing), strict=True):
            if not isinstance(result, Exception):
                found[name] = bytes(result)
            elif isinstance(result, FileNotFoundError):
                found[name] = None
            else:
                errors.append(result)
        if errors:
            raise errors[0]

    def _read(self, name: str) -> bytes | None:
        found: dict[str, bytes | None] = {}
        self._read_missing([name], found)
        return found[name]

    def _create(self, name: str, data: bytes) -> bytes | None:
        try:
            self._call("pipe_file", self._join(name), data, mode="create")
        except Exception:
            # Stores say in different ways that the name is taken, so the object tells.
            existing = self._read(name)
            if existing is None:
                raise
            return None if existing == data else existing
        return None

    def _call_all(self, method: str, names: Sequence[str]) -> Sequence[Any]:
        """Call a method for each of some objects; return the results or exceptions."""
        paths = [self._join(name) for name in names]
        if self._system.async_impl:
            gathered: list[Any] = self._sync(_gather, getattr(self._system, f"_{method}"), paths)
            return gathered
        results: list[Any] = []
        for path in paths:
            try:
                results.append(getattr(self._system, method)(path))
            except Exception as error:  # noqa: BLE001 - as asyncio.gather
                results.append(error)
        return results

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self._system.async_impl:
            return self._sync(getattr(self._system, f"_{method}"), *args, **kwargs)
        return getattr(self._system, method)(*args, **kwargs)

    def _sync(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        from fsspec.asyn import sync

        return sync(self._system.loop, function, *args, timeout=_CALL_SECONDS, **kwargs)

    def _join(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _repeat(self, action: Callable[[], Result], verb: str) -> Result:
        deadline = self._clock.now() + RETRY_SECONDS
        pause = _FIRST_PAUSE
        while True:
            try:
                return action()
            except Exception as error:
                if isinstance(error, _PERMANENT) or self._clock.now() + pause > deadline:
                    raise self._translate(error, verb) from error
                _logger.warning("cannot %s %s, trying again: %s", verb, self.url, _text(error))
            self._clock.sleep(pause)
            pause = min(_LAST_PAUSE, 2 * pause)

    def _translate(self, error: Exception, verb: str) -> StokerError:
        reason = f"the journal at {self.url} cannot be {_PARTICIPLES[verb]}: {_text(error)}"
        if isinstance(error, PermissionError):
            return PermissionDeniedError(
                f"{reason}; permit the dispatcher to list, read, create and delete objects there"
            )
        if isinstance(error, FileNotFoundError):
            return NotFoundError(f"{reason}; create the bucket, or name another `work_dir`")
        return UnavailableError(
            f"{reason}; when the store can be reached, start the dispatcher again, which then "
            "knows all that it ever told"
        )


_PARTICIPLES = {"list": "listed", "read": "read", "write": "written"}


async def _gather(method: Callable[..., Any], paths: list[str]) -> list[Any]:
    return await asyncio.gather(*map(method, paths), return_exceptions=True)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
