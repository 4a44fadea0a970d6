"""Server that forks worker processes: ``python -P -m stoker.service.worker.processes.fork_server``.

Its argument is the descriptor of a socket on which a `ForkServer` sends requests: descriptors alone
(`Request`), since the child itself receives its configuration and environment on its lifeline. The
server has imported NumPy and all that an idle worker needs, and has one thread, so that a fork is
complete. Each child sends its process id and pidfd on the socket of its request, on which the
server sends its exit status later. Children live on when the server is killed. The server ends when
its socket is closed and its last child has ended.

Since children are not exec'ed, all children of a server have the seed of Python's hashes and the
umask of its start, and `ps`, `/proc/PID/cmdline` and `/proc/PID/environ` show its arguments and its
environment (docs/decisions/099-worker-processes-are-forked.md).
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
from typing import NamedTuple

import numpy as np

from stoker.dataset.copies import forget_fork
from stoker.service.process.open_files import raise_open_files_limit
from stoker.service.worker.processes.child import main

SERVER_COMMAND = (
    sys.executable,
    "-P",
    "-X",
    "faulthandler",
    "-m",
    "stoker.service.worker.processes.fork_server",
)

_PRELOADED = (
    "stoker.service.worker.server",
    "stoker.wire.transports.local",
    "encodings.idna",
    "numpy.random",  # NumPy imports it when it is first used; each child used 9 ms for that
)
"""Modules that an idle worker imports later than `child`."""

_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})

NUMBER = struct.Struct("=i")


class Request(NamedTuple):
    """Descriptors of a request, in the order in which they are sent."""

    answers: int
    lifeline: int
    page: int
    folder: int
    stdout: int
    stderr: int


class _Server:
    """The loop of the server process, with one thread.

    Args:
        descriptor: of the socket of requests.
    """

    def __init__(self, descriptor: int) -> None:
        self._requests = socket.socket(fileno=descriptor)
        self._children: dict[int, tuple[int, socket.socket]] = {}
        self._waiting = select.poll()
        self._waiting.register(self._requests, select.POLLIN)

    def run(self) -> Request | None:
        """Fork a process for each request; return its request in the child, at the end ``None``."""
        serves = True
        while serves or self._children:
            for ready, _ in self._waiting.poll():
                if ready in self._children:
                    self._report(ready)
                    continue
                data, found, _, _ = socket.recv_fds(self._requests, 1, len(Request._fields))
                if not data:
                    serves = False
                    self._waiting.unregister(ready)
                elif (request := self._fork(found)) is not None:
                    return request
        return None

    def _fork(self, descriptors: list[int]) -> Request | None:
        """Return the request in the child, with no other descriptor of the server open."""
        pid = -1
        if len(descriptors) == len(Request._fields):  # else this process has too many open
            with contextlib.suppress(OSError):  # too many processes; the requester may exec
                pid = os.fork()
        if pid == 0:
            self._requests.close()
            for pidfd, (_, answers) in self._children.items():
                os.close(pidfd)
                answers.close()
            return Request(*descriptors)
        for descriptor in descriptors[pid > 0 :]:
            os.close(descriptor)
        if pid > 0:
            pidfd = os.pidfd_open(pid)
            self._children[pidfd] = pid, socket.socket(fileno=descriptors[0])
            self._waiting.register(pidfd, select.POLLIN)
        return None

    def _report(self, pidfd: int) -> None:
        """Reap a child and send its exit status to the requester, if that still lives."""
        self._waiting.unregister(pidfd)
        pid, answers = self._children.pop(pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with answers, contextlib.suppress(OSError):
            answers.send(NUMBER.pack(status))
        os.close(pidfd)


def _begin_child(request: Request) -> None:
    """Make what a process has by exec: a group, streams, a folder, and random numbers."""
    os.setpgid(0, 0)  # see `WorkerProcess`
    for source, target in ((request.stdout, 1), (request.stderr, 2)):
        os.dup2(source, target)
        os.close(source)
    pidfd = os.pidfd_open(os.getpid())
    with socket.socket(fileno=request.answers) as answers:
        socket.send_fds(answers, [NUMBER.pack(os.getpid())], [pidfd])
    os.close(pidfd)
    os.fchdir(request.folder)
    os.close(request.folder)
    importlib.invalidate_caches()  # what was installed in the same second as a folder was read
    np.random.seed()  # noqa: NPY002 - it has the server's; `random` is seeded by Python
    forget_fork()
    gc.enable()


def serve(descriptor: int) -> int:
    """Run the server; return the exit status of it and of each of its children."""
    # A system that stops a service may signal all its processes: the server reports their ends.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # children of a program that ignores it report too
    raise_open_files_limit()  # it has two descriptors of each child
    gc.disable()
    for name in _PRELOADED:
        importlib.import_module(name)
    # OpenBLAS ends its threads before a fork; a process starts new ones when it first needs them.
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)
    gc.freeze()  # collections in the children do not write to what they share
    request = _Server(descriptor).run()
    if request is None:
        return 0
    _begin_child(request)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return main(request.lifeline, request.page)


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1])))
