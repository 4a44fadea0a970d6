"""Real processes of `stoker`, whose output a test waits for."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator


class Command:
    """A `stoker ...` process; `wait_for` waits for a pattern in its output."""

    def __init__(self, *words: str, **environ: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stoker", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
        )
        assert self._process.stdout is not None
        self._stdout = self._process.stdout
        self.output = ""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def wait_for(self, pattern: str, deadline: float = 60.0) -> re.Match[str]:
        """Wait until the output matches `pattern`, and return the match."""
        end = time.monotonic() + deadline
        while (match := re.search(pattern, self.output)) is None:
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.output}"
            if select.select([self._stdout], [], [], 0.1)[0]:
                data = os.read(self._stdout.fileno(), 65536)
                assert data, f"ended without {pattern!r}:\n{self.output}"
                self.output += data.decode()
        return match

    def send(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait until the process exits, and return its status; `output` has all its output."""
        try:
            self.output += self._process.communicate(timeout=30)[0].decode()
        finally:
            self._process.kill()
            self._process.communicate()
        return self._process.returncode


@contextlib.contextmanager
def running(*words: str, **environ: str) -> Iterator[Command]:
    """Stop the process with SIGTERM at the end."""
    command = Command(*words, **environ)
    try:
        yield command
    finally:
        command.send(signal.SIGTERM)
        command.end()


@contextlib.contextmanager
def running_dispatcher(*words: str) -> Iterator[str]:
    """Yield the dispatcher's address."""
    with running("dispatcher", "--port", "0", *words) as dispatcher:
        yield dispatcher.wait_for(r"dispatcher serves at grpc://(localhost:\d+)\n")[1]
