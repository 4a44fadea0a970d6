"""Fork handling of shared memory, sockets and pollers.

The child has a copy of every view of its parent, but takes no part in any protocol: its writes must
not reach any process, the memory that the child frees is not returned, and its copies of sockets
are closed, so that a peer sees the connection end when the parent ends.
"""

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """An object that is notified when this process forks."""

    def before_fork(self) -> None:
        """Block until an `after_fork` method is called; acquire no lock but a private lock."""

    def after_fork_in_parent(self) -> None:
        """Resume; memory visible at the fork is now visible in the child too."""

    def after_fork_in_child(self) -> None:
        """Leave the protocol, without effect on other processes."""


class Closable(Protocol):
    """An owner of a descriptor, such as a socket."""

    def close(self) -> None:
        """Close the descriptor."""


# Callers add entries while they hold locks that `_before` waits for, so a lock here could deadlock;
# each access is one atomic step of the interpreter.
_watched: dict[int, "weakref.ref[Forked]"] = {}
_closed_in_child: "weakref.WeakSet[Closable]" = weakref.WeakSet()

_fork_lock = threading.Lock()
_blocked: list[Forked] = []


def watch(thing: Forked) -> None:
    """Notify `thing` of forks until `thing` is collected."""
    key = id(thing)
    _watched[key] = weakref.ref(thing, lambda _: _watched.pop(key, None))


def close_in_child(thing: Closable) -> None:
    """Close a forked child's copy of `thing`, which owns a descriptor."""
    _closed_in_child.add(thing)


def _before() -> None:
    _fork_lock.acquire()
    references = list(_watched.values())
    _blocked.extend(thing for reference in references if (thing := reference()) is not None)
    for thing in _blocked:
        thing.before_fork()


def _after_in_parent() -> None:
    for thing in _blocked:
        thing.after_fork_in_parent()
    _blocked.clear()
    _fork_lock.release()


def _after_in_child() -> None:
    for thing in _blocked:
        thing.after_fork_in_child()
    _blocked.clear()
    for owner in list(_closed_in_child):
        owner.close()
    _fork_lock.release()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
