"""Streams that read a store, or read their input and write a store."""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from stoker.dataset.formats.storage import Folder
from stoker.dataset.formats.store import (
    Description,
    StoreBusyError,
    StoreWriter,
    read_description,
)
from stoker.dataset.streams.stream import PushbackStream, Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.elements.spec import spec_to_wire
from stoker.errors import FailedPreconditionError


def read_or_write(
    node: OneInput,
    context: Context,
    folder: Folder,
    metadata: dict[str, str],
    read: Callable[[Description], Stream],
    owner: str,
    compression: str = "",
    file_of: Callable[[Any], int] | None = None,
) -> Stream:
    """Open a complete store, else the node's input, which is then written to the store.

    While another stream writes the store, the input is only read.

    Args:
        node: the node that keeps its input.
        context: for the input.
        folder: the store.
        metadata: the fingerprint the store must have.
        read: opens the store.
        owner: the call that keeps the elements, named in warnings.
        compression: as for `StoreWriter`.
        file_of: as for `StoreWriter`.

    Raises:
        FailedPreconditionError: if another pipeline wrote the store.
        DataLossError: if its description is damaged.
        OSError: if the folder can neither be read nor written.
    """
    found = read_description(folder)
    if found is None:
        spec = partial(spec_to_wire, node.element_spec())
        try:
            writer = StoreWriter(folder, spec, compression, metadata, file_of)
        except StoreBusyError:
            return context.open(node.input)
        with ExitStack() as unused:
            unused.callback(writer.abandon)
            found = read_description(folder)  # perhaps completed elsewhere before the lock
            if found is None:
                stream = CachingStream(context.open(node.input), writer, f"`{owner}` ({node.site})")
                unused.pop_all()
                return stream
    differing = [name for name, value in metadata.items() if found.metadata.get(name) != value]
    if differing:
        raise FailedPreconditionError(
            f"{folder.path} was written by another pipeline: its {' and '.join(differing)} "
            f"differs; delete the folder or name another (found {found.metadata}, expected "
            f"{metadata})"
        )
    return read(found)


class CachingStream(Stream):
    """Yields the input and writes a store, if the input is read whole and without an error.

    An error is not kept: a network's error would stay in the store for good. A writer that fails
    (a full disk) raises once and is abandoned, without losing an element.

    Args:
        stream: the input.
        writer: writes the store.
        owner: the call that keeps the elements and its line, named in a warning.
    """

    def __init__(self, stream: Stream, writer: StoreWriter, owner: str) -> None:
        self._input = PushbackStream(stream)  # gets back what was read when the writer failed
        self._writer: StoreWriter | None = writer
        self._calls_user_code = writer.file_of is not None
        self._owner = owner
        self._lock = threading.Lock()  # `close` may come from another thread

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy and self._calls_user_code:
            max_elements = 1
        try:
            chunk = self._input.next_chunk(max_elements, max_bytes, lazy)
        except Exception as error:
            if self._abandon():
                self._warn(error)
            raise
        with self._lock:
            if self._writer is not None:
                self._write(self._writer, chunk)
        return chunk

    def advance(self, n: int) -> int:
        if n > 0:
            self._abandon()
        return self._input.advance(n)

    def close(self) -> None:
        self._abandon()
        self._input.close()

    def _write(self, writer: StoreWriter, chunk: list[Any]) -> None:
        try:
            if chunk:
                writer.add(chunk)
            else:
                self._writer = None
                writer.finish()
        except Exception:
            self._input.push_back(list(chunk))
            self._writer = None
            writer.abandon()
            raise

    def _abandon(self) -> bool:
        """Keep nothing of this epoch; return whether the epoch was being written."""
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.abandon()
            return writer is not None

    def _warn(self, error: Exception) -> None:
        logging.getLogger("stoker.dataset").warning(
            "%s keeps nothing of this epoch: an element failed with %s: %s. With ignore_errors() "
            "before it, the others are kept",
            self._owner,
            type(error).__name__,
            error,
        )


class LazyStream(Stream):
    """A stream that is opened when first read; an error of opening is its only position."""

    def __init__(self, open_stream: Callable[[], Stream]) -> None:
        self._open_stream: Callable[[], Stream] | None = open_stream
        self._stream: Stream | None = None
        self._closed = False
        self._lock = threading.Lock()

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        stream = self._opened()
        return stream.next_chunk(max_elements, max_bytes, lazy) if stream else []

    def advance(self, n: int) -> int:
        try:
            stream = self._opened() if n else None
        except Exception:  # noqa: BLE001 - the position is skipped, whatever its content
            return 1
        return stream.advance(n) if stream else 0

    def close(self) -> None:
        with self._lock:
            self._closed, self._open_stream = True, None
            stream = self._stream
        if stream is not None:
            stream.close()

    def _opened(self) -> Stream | None:
        open_stream, self._open_stream = self._open_stream, None
        if open_stream is None:
            return self._stream
        stream = open_stream()  # without the lock: a user function runs, and may close this stream
        with self._lock:
            if not self._closed:
                self._stream = stream
                return stream
        stream.close()
        return None
