"""The times at which this process got its copies of datasets, by fork or by unpickling."""

import math
import os
import sys
import time
import weakref

from stoker.dataset.tree.node import Node, number

_unpickled: "weakref.WeakKeyDictionary[Node, float]" = weakref.WeakKeyDictionary()
_forked_at = -math.inf


def copied_at(node: Node) -> float:
    """Return when the copy of a dataset was made that `node` belongs to.

    Returns:
        Seconds, on the clock of `time.monotonic`; minus infinity for the original.
    """
    return max(_unpickled.get(node, -math.inf), _forked_at)


def note_unpickled(root: Node, spawned_at: float | None) -> None:
    """Note that the tree of a dataset was unpickled now.

    Args:
        root: the tree.
        spawned_at: what `spawn_time` returned when the dataset was pickled.
    """
    at = time.monotonic() if spawned_at is None else spawned_at
    for node in number(root):
        _unpickled[node] = at


def spawn_time() -> float | None:
    """Return the time if this thread pickles the arguments of a child process; otherwise ``None``.

    Such a copy is as old as a copy made by fork, though the child unpickles the copy seconds later.
    The child is on this machine, where all processes share a monotonic clock.
    """
    context = sys.modules.get("multiprocessing.context")
    starting = context is not None and context.get_spawning_popen() is not None
    return time.monotonic() if starting else None


def _note_fork() -> None:
    global _forked_at
    _forked_at = time.monotonic()


def forget_fork() -> None:
    """Forget that this process was forked, since its parent had no datasets."""
    global _forked_at
    _forked_at = -math.inf


os.register_at_fork(after_in_child=_note_fork)
