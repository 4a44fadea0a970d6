"""Iterators of this process that share the local tasks of an iteration.

When the last of them that was read closes before the end, the tasks are deleted: an iterator that
was opened meanwhile, but not read, would silently miss what the other has consumed. It is closed
with the error of one that is opened afterwards. While another is read, all go on.
"""

import weakref
from abc import abstractmethod
from typing import NamedTuple, Protocol

from stoker.errors import ErrorRecord, StokerError, from_record


class LocalIteration(NamedTuple):
    """An iteration as the clients of one process name it, before they know the dispatcher's id."""

    dispatcher_address: str
    job: str
    epoch: tuple[int, ...]


class LocalReader(Protocol):
    """An open iterator.

    Attributes:
        iteration: what it reads; ``None`` unless its tasks end with it.
        was_read: its first element was requested by the user.
    """

    iteration: LocalIteration | None
    was_read: bool

    @abstractmethod
    def delete(self, error: StokerError) -> None:
        """Close it, unless it was read; each read raises `error`."""


# Without a lock: finalizers close iterators on any thread, also while it opens another.
_open: dict[int, "weakref.ref[LocalReader]"] = {}


def opened(reader: LocalReader) -> None:
    """Remember an iterator until it is closed."""
    if reader.iteration is None:
        return
    key = id(reader)
    _open[key] = weakref.ref(reader, lambda _: _open.pop(key, None))


def closed(reader: LocalReader, error: ErrorRecord | None) -> None:
    """Forget an iterator, and delete those that were not read if none is left that was.

    Args:
        reader: the iterator.
        error: the error for others if it has consumed a part of a task, else ``None``.
    """
    _open.pop(id(reader), None)
    if error is None:
        return
    each = [ref() for ref in list(_open.values())]
    # Weak references: an iterator may be collected while this one closes.
    others = [x for x in each if x is not None and x.iteration == reader.iteration]
    if not any(other.was_read for other in others):
        for other in others:
            other.delete(from_record(error))
