"""`stoker top` in a terminal of its own."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from stoker.cli.status import top as status_top
from stoker.service import DispatchServer
from tests.cli.status.test_status import stoker_command
from tests.serving import Service

pytestmark = pytest.mark.timeout(120)


class Terminal:
    """A `stoker top` with a pseudo-terminal of 80 columns."""

    def __init__(self, *words: str) -> None:
        self._master, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stoker", "top", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "40"},
        )
        os.close(theirs)
        self.output = ""

    def wait_for(self, pattern: str, deadline: float = 60.0) -> None:
        """Wait until the output since the last call matches."""
        end = time.monotonic() + deadline
        while not re.search(pattern, self.output):
            assert time.monotonic() < end, f"no {pattern!r} in {self.output!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                self.output += os.read(self._master, 65536).decode(errors="replace")
        self.output = ""

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def end(self) -> int:
        """Return the exit status; the output is read, or the process could not write."""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while os.read(self._master, 65536):
                continue
        return self.process.wait(30)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def top(*words: str) -> Iterator[Terminal]:
    terminal = Terminal(*words)
    try:
        yield terminal
    finally:
        terminal.close()


def test_top_shows_the_service_until_q():
    with Service(1) as service, top(service.target, "--interval", "100ms") as terminal:
        terminal.wait_for("1 worker, idle: no client reads")
        terminal.wait_for(re.escape(service.workers[0].address))
        service.add_worker()
        terminal.wait_for("2 workers")
        terminal.press("q")
        assert terminal.end() == 0


def test_top_ends_by_ctrl_c_with_exit_code_0():
    with DispatchServer() as dispatcher, top(dispatcher.target) as terminal:
        terminal.wait_for("no worker is registered")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0


def test_top_goes_on_with_a_restarted_dispatcher():
    with Service(0) as service, top(service.target, "--interval", "0.1") as terminal:
        terminal.wait_for("no worker is registered")
        service.dispatcher.stop()
        terminal.wait_for(r"no answer for \d+s: the dispatcher at \S+ cannot be reached")
        service.restart_dispatcher()
        service.add_worker()
        terminal.wait_for("1 worker")
        terminal.press("q")
        assert terminal.end() == 0


def test_top_without_a_terminal_names_status():
    done = stoker_command("top", "localhost:1")
    assert done.returncode == 1
    assert done.stderr == (
        "stoker: `stoker top` needs a terminal; print the state once with `stoker status`\n"
    )


def test_wrong_interval_is_wrong_usage():
    done = stoker_command("top", "localhost:1", "--interval", "2 hours")
    assert done.returncode == 2
    assert done.stderr.startswith("stoker: --interval: '2 hours' is not a time")


def test_top_of_a_wrong_address_is_one_line():
    with top("nowhere:x") as terminal:
        terminal.wait_for(r"stoker: `address` 'nowhere:x' has the port 'x', which is not a number")
        assert terminal.end() == 2


def test_internal_error_ends_the_poller(monkeypatch: pytest.MonkeyPatch):
    def get_status(_: str) -> None:
        raise AssertionError("no reply")

    monkeypatch.setattr(status_top, "get_status", get_status)
    poller = status_top.StatusPoller("localhost:1", 1.0)
    poller.run()
    assert str(poller.fatal) == "internal error: AssertionError: no reply"
