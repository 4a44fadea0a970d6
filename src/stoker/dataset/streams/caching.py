"""Reading a dataset while it is kept, and opening what is read when it is read first."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from stoker.dataset.streams.stream import Stream


class Record(Protocol):
    """Where a pass is kept."""

    def add(self, elements: list[Any]) -> None:
        """Keeps what comes next."""

    def finish(self) -> None:
        """That was all: from here on it may be read."""

    def abandon(self) -> None:
        """Removes what was kept, unless it was finished; idempotent."""


class CachingStream(Stream):
    """Hands the input on and keeps it, if the pass is read whole and without an error.

    An error is not kept: it may have been the network's, and would stay in the record for good. A
    record that fails (a full disk) raises once and is given up; no element is lost by it.

    Args:
        stream: the input.
        record: where to.
        keeper: who keeps it, as a warning names it: its call and the line that made it.
    """

    def __init__(self, stream: Stream, record: Record, keeper: str) -> None:
        self._stream = stream
        self._record: Record | None = record
        self._keeper = keeper
        self._lock = threading.Lock()  # `close` may come from another thread
        self._held: list[Any] = []

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy:
            max_elements = 1  # the record may call a function for each
        if self._held:
            chunk, self._held = self._held[:max_elements], self._held[max_elements:]
            return chunk
        try:
            chunk = self._stream.next_chunk(max_elements, max_bytes, lazy)
        except Exception as error:
            self._spoilt(error)
            raise
        if chunk:
            self._keep(chunk)
        else:
            self._finish()
        return chunk

    def advance(self, n: int) -> int:
        if n <= 0:
            return 0
        self._abandon()
        held = min(n, len(self._held))
        del self._held[:held]
        return held + self._stream.advance(n - held) if n > held else held

    def close(self) -> None:
        self._abandon()
        self._stream.close()

    def _keep(self, chunk: list[Any]) -> None:
        with self._lock:
            if self._record is None:
                return
            try:
                self._record.add(chunk)
            except Exception:
                self._held = chunk
                self._give_up()
                raise

    def _finish(self) -> None:
        with self._lock:
            if self._record is None:
                return
            try:
                self._record.finish()
            finally:
                self._give_up()

    def _spoilt(self, error: Exception) -> None:
        if self._record is not None:
            self._abandon()
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        import logging

        logging.getLogger("stoker.dataset").warning(
            "%s keeps nothing of this pass: an element failed with %s: %s. With ignore_errors() "
            "before it, the others are kept",
            self._keeper,
            type(error).__name__,
            error,
        )

    def _abandon(self) -> None:
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            record.abandon()


def recorded(open_it: Callable[[], Stream], record: Record, keeper: str) -> Stream:
    """What `open_it` opens, kept as `CachingStream` does; if it fails, the record is given up."""
    try:
        return CachingStream(open_it(), record, keeper)
    except BaseException:
        record.abandon()
        raise


class LazyStream(Stream):
    """A stream that is opened when it is read first; an error in that is its only position."""

    def __init__(self, open_it: Callable[[], Stream]) -> None:
        self._open_it: Callable[[], Stream] | None = open_it
        self._stream: Stream = _EmptyStream()
        self._lock = threading.Lock()

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._open_it is not None:
            self._open()
        return self._stream.next_chunk(max_elements, max_bytes, lazy)

    def advance(self, n: int) -> int:
        if n and self._open_it is not None:
            try:
                self._open()
            except Exception:  # noqa: BLE001 - the position is passed, whatever it holds
                return 1
        return self._stream.advance(n)

    def close(self) -> None:
        with self._lock:
            self._open_it = None
        self._stream.close()

    def _open(self) -> None:
        with self._lock:
            open_it, self._open_it = self._open_it, None
            if open_it is not None:
                self._stream = open_it()


class _EmptyStream(Stream):
    """Nothing."""

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        return []
