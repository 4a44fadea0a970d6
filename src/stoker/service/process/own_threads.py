"""Threads of stoker on which nothing may wait for them."""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress

_PREFIX = "stoker-"
"""The names of the threads that run the control loop, pipelines and connections."""


def run_apart(work: Callable[[], None]) -> bool:
    """Return whether `work`, which waits for threads of stoker, must not run on this thread.

    A finalizer runs on the thread that collects the garbage. If that is one of stoker, `work` runs
    on a new thread. While the interpreter exits, it does not run: threads do not continue.
    """
    if sys.is_finalizing():
        return True
    if not threading.current_thread().name.startswith(_PREFIX):
        return False
    with suppress(RuntimeError):  # the interpreter begins to exit
        threading.Thread(target=work, name="closing-stoker").start()
    return True
