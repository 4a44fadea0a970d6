"""Streams that write what they read to a cache, and streams that are opened when first read."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from stoker.dataset.streams.stream import Stream


class CacheWriter(Protocol):
    """Writes the elements of one epoch to a cache.

    Attributes:
        calls_user_code: whether `add` calls a user function for each element.
    """

    @property
    def calls_user_code(self) -> bool: ...

    def add(self, elements: list[Any]) -> None:
        """Append elements."""

    def finish(self) -> None:
        """Publish the elements: from here on they may be read."""

    def abandon(self) -> None:
        """Remove the elements, unless they were published; idempotent."""


class CachingStream(Stream):
    """Yields the input and writes it to a cache, if it is read whole and without an error.

    An error is not kept: it may have been the network's, and would stay in the cache for good. A
    writer that fails (a full disk) raises once and is abandoned; no element is lost by it.

    Args:
        stream: the input.
        writer: writes the cache.
        owner: the call that keeps the elements and its line, named in a warning.
    """

    def __init__(self, stream: Stream, writer: CacheWriter, owner: str) -> None:
        self._stream = stream
        self._writer: CacheWriter | None = writer
        self._owner = owner
        self._lock = threading.Lock()  # `close` may come from another thread
        self._unwritten: list[Any] = []  # read when the writer failed

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy and self._writer is not None and self._writer.calls_user_code:
            max_elements = 1
        if self._unwritten:
            chunk = self._unwritten[:max_elements]
            del self._unwritten[:max_elements]
            return chunk
        try:
            chunk = self._stream.next_chunk(max_elements, max_bytes, lazy)
        except Exception as error:
            self._reject(error)
            raise
        if chunk:
            self._write(chunk)
        else:
            self._finish()
        return chunk

    def advance(self, n: int) -> int:
        if n <= 0:
            return 0
        self._abandon()
        skipped = min(n, len(self._unwritten))
        del self._unwritten[:skipped]
        return skipped + self._stream.advance(n - skipped) if n > skipped else skipped

    def close(self) -> None:
        self._abandon()
        self._stream.close()

    def _write(self, chunk: list[Any]) -> None:
        with self._lock:
            if self._writer is None:
                return
            try:
                self._writer.add(chunk)
            except Exception:
                self._unwritten = list(chunk)
                self._drop_writer()
                raise

    def _finish(self) -> None:
        with self._lock:
            if self._writer is None:
                return
            try:
                self._writer.finish()
            finally:
                self._drop_writer()

    def _reject(self, error: Exception) -> None:
        """Keep nothing of an epoch with an error, and warn of it."""
        import logging

        if self._writer is None:
            return
        self._abandon()
        logging.getLogger("stoker.dataset").warning(
            "%s keeps nothing of this epoch: an element failed with %s: %s. With ignore_errors() "
            "before it, the others are kept",
            self._owner,
            type(error).__name__,
            error,
        )

    def _abandon(self) -> None:
        with self._lock:
            self._drop_writer()

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abandon()


class LazyStream(Stream):
    """A stream that is opened when it is first read; an error in that is its only position."""

    def __init__(self, open_stream: Callable[[], Stream]) -> None:
        self._open_stream: Callable[[], Stream] | None = open_stream
        self._stream: Stream = _EmptyStream()
        self._lock = threading.Lock()

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._open_stream is not None:
            self._open()
        return self._stream.next_chunk(max_elements, max_bytes, lazy)

    def advance(self, n: int) -> int:
        if n and self._open_stream is not None:
            try:
                self._open()
            except Exception:  # noqa: BLE001 - the position is skipped, whatever it contains
                return 1
        return self._stream.advance(n)

    def close(self) -> None:
        with self._lock:
            self._open_stream = None
        self._stream.close()

    def _open(self) -> None:
        with self._lock:
            open_stream, self._open_stream = self._open_stream, None
            if open_stream is not None:
                self._stream = open_stream()


class _EmptyStream(Stream):
    """A stream without elements."""

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        return []
