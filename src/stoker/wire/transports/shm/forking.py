"""What a fork does to memory and sockets that two processes share.

The child has a copy of every view its parent had, and no part in any protocol: what it writes may
not reach anybody, what it lets go of is not given back, and its copies of sockets are closed, so
that a peer sees the end of the parent when the parent ends.
"""

import os
import socket
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """What takes part when this process forks."""

    def before_fork(self) -> None:
        """Hold still until one of the other two is called; takes no lock but one of its own."""

    def after_fork_in_parent(self) -> None:
        """Go on; what was visible at the fork is now visible in the child too."""

    def after_fork_in_child(self) -> None:
        """Become harmless."""


# Added to under locks that `_before` waits for, so without one of its own: each of these is one
# step of the interpreter.
_watched: dict[int, "weakref.ref[Forked]"] = {}
_sockets: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()

_one_at_a_time = threading.Lock()
_held: list[Forked] = []


def watch(thing: Forked) -> None:
    """Tell `thing` of forks, as long as it lives."""
    key = id(thing)
    _watched[key] = weakref.ref(thing, lambda _: _watched.pop(key, None))


def close_in_child(sock: socket.socket) -> None:
    """Close a forked child's copy of `sock`."""
    _sockets.add(sock)


def _before() -> None:
    _one_at_a_time.acquire()
    references = list(_watched.values())
    _held.extend(thing for reference in references if (thing := reference()) is not None)
    for thing in _held:
        thing.before_fork()


def _after_in_parent() -> None:
    for thing in _held:
        thing.after_fork_in_parent()
    _held.clear()
    _one_at_a_time.release()


def _after_in_child() -> None:
    for thing in _held:
        thing.after_fork_in_child()
    _held.clear()
    for sock in list(_sockets):
        sock.close()
    _one_at_a_time.release()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
