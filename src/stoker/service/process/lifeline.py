"""End of a child process with its parent."""

import fcntl
import os
import select
import socket
import sys
import threading


def die_with(parent: socket.socket) -> None:
    """End this process when the other end of `parent` closes; nothing may be sent on it any more.

    On Linux by SIGIO, whose default action is to terminate: the kernel delivers it even while a
    user function holds the GIL. (A parent-death signal is no alternative: it is also sent when the
    *thread* of the parent that started the child ends.) The thread serves other systems, and
    programs that handle SIGIO.
    """
    if sys.platform == "linux":
        fcntl.fcntl(parent, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent, fcntl.F_SETFL, fcntl.fcntl(parent, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        waiting = select.poll()  # not recv: the kernel sends no SIGIO during it
        waiting.register(parent, select.POLLIN)
        waiting.poll()
        os._exit(1)

    threading.Thread(target=watch, name="stoker-lifeline", daemon=True).start()
