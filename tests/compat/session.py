"""Run each of TensorFlow's examples in its own process, with the import line and ports changed."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

_SECTION = re.compile(r"^## (.+?)$[^#]*?^```(pycon|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = Path(__file__).parent / "examples"
DEADLINE = 40.0
"""Timeout of an example in seconds: many times what any of them needs."""

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
        """The script's code after the import line, with "dataservice" resolving to localhost."""
        return f"{_HOSTS}\n{IMPORT}\n{self.code}"

    def at(self, ports: dict[int, int]) -> "Example":
        """Return the example with other ports: those of TensorFlow may be in use here."""
        code = re.sub(r"\d+", lambda found: str(ports.get(int(found[0]), found[0])), self.code)
        return replace(self, code=code)


def examples() -> list[Example]:
    """Return the examples of all versions, in order."""
    return [
        Example(path.stem, *found.groups())
        for path in sorted(EXAMPLES.glob("*.md"))
        for found in _SECTION.finditer(path.read_text())
    ]


def run_doctest(example: Example) -> None:
    """Run a doctest example, and fail if any output differs from the documented one."""
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
    """Run each program in its own process, terminated when the context ends."""
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
    """Wait until a program exits, check that it succeeded, and return its stdout."""
    printed, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    return printed
