"""Threads of stoker on which nothing may wait for them."""

import threading
from collections.abc import Callable

_PREFIX = "stoker-"
"""The names of the threads that run the control loop, pipelines and connections."""


def run_apart(work: Callable[[], None]) -> bool:
    """Run `work` on a new thread if the caller runs on a thread of stoker; return whether it does.

    A finalizer runs on the thread that collects the garbage. `work` may wait for that thread, so it
    must not run there.
    """
    if not threading.current_thread().name.startswith(_PREFIX):
        return False
    threading.Thread(target=work, name="closing-stoker").start()
    return True
