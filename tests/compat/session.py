"""Runs TensorFlow's examples: each in a process of its own, with only the import line changed."""

import contextlib
import fcntl
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_SECTION = re.compile(r"^## (.+?)$[^#]*?^```(pycon|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = Path(__file__).parent / "examples"
DEADLINE = 40.0
"""Seconds after which an example is given up: many times what any of them takes."""

IMPORT = "from stoker.compat import tf"

_DOCTEST = f"""
import doctest, sys
{IMPORT}
test = doctest.DocTestParser().get_doctest(sys.stdin.read(), {{"tf": tf}}, "example", "example", 0)
assert test.examples
sys.exit(doctest.DocTestRunner().run(test).failed != 0)
"""

_HOSTS = """
import socket
ask = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: ask(
    "localhost" if host in ("dataservice", b"dataservice") else host, *rest, **more)
"""


@dataclass(frozen=True)
class Example:
    """One example: the version's file, its heading there, and its code."""

    version: str
    title: str
    kind: str
    code: str

    def __str__(self) -> str:
        return f"{self.version}: {self.title}"

    @property
    def program(self) -> str:
        """A script's code behind the import line, on a network that has a host "dataservice"."""
        return f"{_HOSTS}\n{IMPORT}\n{self.code}"


def examples() -> list[Example]:
    """Every example of every version, in order."""
    return [
        Example(path.stem, *found.groups())
        for path in sorted(EXAMPLES.glob("*.md"))
        for found in _SECTION.finditer(path.read_text())
    ]


def run_doctest(example: Example) -> None:
    """Runs an example with prompts, and fails unless every output is as it says."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _DOCTEST],
        input=example.code,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, f"{example}\n{done.stdout}{done.stderr}"


@contextlib.contextmanager
def running(*programs: str) -> Iterator[list["subprocess.Popen[str]"]]:
    """The programs, each in a process of its own, which is ended on leaving."""
    with contextlib.ExitStack() as stack:
        processes = []
        for program in programs:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-W", "error", "-c", program],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.send_signal, signal.SIGTERM)
            processes.append(process)
        try:
            yield processes
        except Exception as error:
            for process in processes:
                process.send_signal(signal.SIGTERM)
                error.add_note(f"process {process.pid} wrote: {process.communicate()[1]}")
            raise


def output(process: "subprocess.Popen[str]") -> str:
    """What a program printed, once it has ended well."""
    printed, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    return printed


@contextlib.contextmanager
def fixed_ports(*ports: int) -> Iterator[None]:
    """These ports for one test at a time, in whatever process; fails if another program has one."""
    path = Path(tempfile.gettempdir()) / "fixed-ports-of-stoker-tests.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for port in ports:
            try:
                socket.create_server(("127.0.0.1", port)).close()
            except OSError as error:
                pytest.fail(
                    f"TensorFlow's example needs port {port}, and another program has it: {error}"
                )
        yield
