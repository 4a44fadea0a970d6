"""Worker processes that a server forks, as their parent sees them."""

import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import threading
import time

from stoker.service.worker.processes.environment import worker_environment
from stoker.service.worker.processes.fork_server import NUMBER, SERVER_COMMAND, Request
from stoker.wire.transports.forking import close_in_child

UNKNOWN_STATUS = 256
"""Exit status of a child whose server was killed; a real status is at most 255."""

_ANSWER_SECONDS = 60.0
"""Seconds that a server may take to fork; before the first fork it imports its modules."""

_READ_BEFORE_FORK = tuple(
    b"BLIS_ GLIBC_ GOTO_ HOME KMP_ LANG LC_ LD_ MALLOC_ MKL_ NPY_ OMP_ OPENBLAS_ PYTHON TZ".split()
)
"""Begin the names of variables that have no effect after the fork: the dynamic linker, the C
library, the start of Python (`HOME` has the user's packages) and NumPy with its BLAS read them."""

_LIMITS = [
    getattr(resource, name)
    for name in dir(resource)
    if name.startswith("RLIMIT_") and name != "RLIMIT_NOFILE"  # workers raise it
]


class ForkedProcess:
    """A child of a `ForkServer`, with the methods of `subprocess.Popen`."""

    def __init__(self, pid: int, pidfd: int, answers: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = pidfd
        self._answers = answers
        self._waiting = threading.Lock()
        self._ending = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status; ``None`` while it runs or another thread is in `wait`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status after the end, or raise `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._waiting.acquire(timeout=-1 if timeout is None else timeout):
            try:
                if self.returncode is None:
                    self._wait(deadline)
            finally:
                self._waiting.release()
        if self.returncode is None:
            raise subprocess.TimeoutExpired(SERVER_COMMAND, timeout or 0)
        return self.returncode

    def _wait(self, deadline: float | None) -> None:
        if not _is_readable(self._answers.fileno(), deadline):
            return
        answer = self._answers.recv(NUMBER.size)
        # The server was killed if there is no answer; the pidfd still shows the end.
        if answer or _is_readable(self._pidfd, deadline):
            with self._ending:
                self.returncode = NUMBER.unpack(answer)[0] if answer else self._orphans_status()
                os.close(self._pidfd)
                self._answers.close()

    def _orphans_status(self) -> int:
        """Return the exit status if this process has adopted the child, as PID 1 of a container."""
        with contextlib.suppress(ChildProcessError):
            end = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
            if end is not None:
                return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        return UNKNOWN_STATUS

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with self._ending, contextlib.suppress(ProcessLookupError):
            if self.returncode is None:  # else the descriptor is closed, or another process's
                signal.pidfd_send_signal(self._pidfd, number)


class ForkServer:
    """Forks worker processes in a server process, which the first call of `fork` starts.

    Another server takes the place of one that was killed, and of one that was started with other
    limits, cores or variables that are read before the fork. `close` must be called at the end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: list[subprocess.Popen[bytes]] = []
        self._requests: socket.socket | None = None
        self._inherited: object = None

    def fork(self, lifeline: int, page: int, stdout: int, stderr: int) -> ForkedProcess | None:
        """Return a new process with copies of these descriptors and of the working directory.

        Returns:
            ``None`` if it must be exec'ed: the system has no pidfds, a standard stream is closed,
            or the server was killed before the fork.

        Raises:
            OSError: if the server cannot be started, or does not answer.
        """
        if not _is_supported():
            return None
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                folder = os.open(".", os.O_PATH)  # the name may be of another folder, or of none
                try:
                    self._request(Request(theirs.fileno(), lifeline, page, folder, stdout, stderr))
                finally:
                    os.close(folder)
            answers.settimeout(_ANSWER_SECONDS)
            number, pidfds, _, _ = socket.recv_fds(answers, NUMBER.size, 1)
            answers.setblocking(True)
        except BaseException:
            answers.close()
            raise
        if not pidfds:  # no process has the lifeline: the child itself sends the first answer
            answers.close()
            return None
        return ForkedProcess(NUMBER.unpack(number)[0], pidfds[0], answers)

    def start(self) -> None:
        """Start the server, which takes as long as the start of Python, without waiting for it."""
        if _is_supported():
            with self._lock:
                self._current()

    def _request(self, request: Request) -> None:
        with self._lock:
            try:
                socket.send_fds(self._current(), [b"\0"], request)
            except OSError:  # the server was killed, or this process is a fork of its parent
                socket.send_fds(self._start(), [b"\0"], request)

    def _current(self) -> socket.socket:
        """Return the socket of a server that was started as one would be now. Under the lock."""
        if self._requests is None or self._inherited != _inherited_by_exec():
            return self._start()
        return self._requests

    def _start(self) -> socket.socket:
        """Start a server; the one before it ends with its last child. Under the lock."""
        if self._requests is not None:
            self._requests.close()
        self._servers = [server for server in self._servers if server.poll() is None]
        self._inherited = _inherited_by_exec()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        close_in_child(self._requests)
        with theirs:
            server = subprocess.Popen(
                [*SERVER_COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=worker_environment(),
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        self._servers.append(server)
        return self._requests

    def close(self) -> None:
        """End the servers, after all processes have ended."""
        with self._lock:
            if self._requests is not None:
                self._requests.close()
            for server in self._servers:
                server.kill()
                server.wait()


def _is_supported() -> bool:
    with contextlib.suppress(AttributeError, OSError):
        for descriptor in (os.pidfd_open(os.getpid()), os.dup(1), os.dup(2)):
            os.close(descriptor)
        return True
    return False


def _inherited_by_exec() -> object:
    """Return what an exec'ed process inherits and a request does not have."""
    variables = {
        name: value for name, value in os.environb.items() if name.startswith(_READ_BEFORE_FORK)
    }
    return variables, [resource.getrlimit(each) for each in _LIMITS], os.sched_getaffinity(0)


def _is_readable(descriptor: int, deadline: float | None) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
    return bool(waiting.poll(left))
