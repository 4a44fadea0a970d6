"""Calls a compactor, and tells its errors from those of the store that it reads."""

import threading
from collections.abc import Callable, Iterable, Iterator

from stoker.service.journal.store import History

Compactor = Callable[[Iterable[bytes], Iterable[bytes]], Iterator[bytes]]
"""Yields the parts of a new snapshot, given those of the last one and the units behind it."""


class CompactorError(Exception):
    """A compactor raised `__cause__`."""


class StoppedError(Exception):
    """The journal is being closed."""


def rewrite(compact: Compactor, history: History, stopping: threading.Event) -> Iterator[bytes]:
    """Yield what `compact` makes of `history`.

    Raises:
        CompactorError: from an exception of `compact`.
        StokerError: if the history cannot be read.
        StoppedError: when `stopping` is set.
    """
    snapshot, units = _Source(history.snapshot, stopping), _Source(history.units, stopping)
    try:
        for part in compact(snapshot, units):
            if stopping.is_set():
                raise StoppedError
            yield part
    except StoppedError:
        raise
    except Exception as error:
        for source in (snapshot, units):
            if source.error is not None:
                raise source.error from None
        raise CompactorError from error


class _Source:
    """Iterates as `items`, and keeps the exception that ends it."""

    def __init__(self, items: Iterable[bytes], stopping: threading.Event) -> None:
        self.error: Exception | None = None
        self._items = items
        self._stopping = stopping

    def __iter__(self) -> Iterator[bytes]:
        try:
            for item in self._items:
                if self._stopping.is_set():
                    raise StoppedError
                yield item
        except Exception as error:
            self.error = error
            raise
