"""Execute the snippets of one document in order and in one directory, as a reader would."""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import TracebackType

import msgspec

from tests.docs.snippets import Snippet, commands_of

ROOT = Path(__file__).parents[2]

_SERVERS = re.compile(r"^stoker (dispatcher|worker)\b")
_SERVES = b" serves at "
_RECURSIVE = re.compile(r"^make \w+$")
_INSTALL = re.compile(r"^pip install ")

# Reads blocks as JSON lines, runs them in one namespace, and answers each with a byte. They are the
# main module of its process, so that functions are pickled by value, as a script's are.
_INTERPRETER = """
import json, os, sys, types
driver, page = sys.modules["__main__"], types.ModuleType("__main__")
sys.modules["__main__"] = page
for block in sys.stdin:
    name, code = json.loads(block)
    exec(compile(code, name, "exec"), page.__dict__)
    sys.stdout.flush()
    os.write(int(sys.argv[1]), b".")
"""


class SnippetFailedError(Exception):
    """A snippet failed."""


class Session:
    """Context in which one document's snippets run, in a temporary directory.

    Servers run until the context ends; every occurrence of port 5050 is replaced by a free one.
    Targets of make run with `--dry-run`, since `make test` runs this. `pip install .` installs into
    the directory of the session, without dependencies.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack = contextlib.ExitStack()
        self._interpreter: subprocess.Popen[bytes] | None = None
        self._answers = -1

    def __enter__(self) -> "Session":
        directory = tempfile.TemporaryDirectory(prefix="docs-")
        self._directory = Path(self._stack.enter_context(directory))
        self._log = self._stack.enter_context((self._directory / "output").open("w+b"))
        # Snippets name the port before a server has it, so that no server can choose it.
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            self._port = str(probe.getsockname()[1])
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "NO_COLOR": "1",
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def run(self, snippet: Snippet) -> None:
        """Execute one snippet.

        Raises:
            SnippetFailedError: if it failed, with its line in the document and its output.
        """
        text = snippet.text.replace("5050", self._port)
        if snippet.kind == "python":
            self._run_python(text, snippet.line)
            return
        for command in commands_of(text):
            self._run_command(command, snippet.line)

    def _run_python(self, text: str, line: int) -> None:
        process = self._interpreter = self._interpreter or self._start_interpreter()
        assert process.stdin is not None
        # Blank lines before the code make tracebacks name the line of the document.
        block = (self._name, "\n" * (line - 1) + textwrap.dedent(text))
        process.stdin.write(msgspec.json.encode(block) + b"\n")
        process.stdin.flush()
        if os.read(self._answers, 1) != b".":
            raise self._failure(line, f"exit code {process.wait()}")

    def _start_interpreter(self) -> "subprocess.Popen[bytes]":
        self._answers, theirs = os.pipe()
        self._stack.callback(os.close, self._answers)
        process = self._start(
            [sys.executable, "-c", _INTERPRETER, str(theirs)], stdin=subprocess.PIPE, fds=[theirs]
        )
        os.close(theirs)
        return process

    def _run_command(self, command: str, line: int) -> None:
        if _SERVERS.match(command):
            self._serve(shlex.split(command.removesuffix("&")), line)
            return
        if _RECURSIVE.match(command):
            words, where = ["make", "--dry-run", *shlex.split(command)[1:]], ROOT
        elif _INSTALL.match(command):
            words, where = _local_install(command, self._directory / "installed"), ROOT
        else:
            words, where = ["bash", "-euo", "pipefail", "-c", command], self._directory
        done = subprocess.run(
            words,
            cwd=where,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            raise self._failure(line, f"exit code {done.returncode} from {command!r}")

    def _serve(self, words: list[str], line: int) -> None:
        """Start a server and wait until it prints that it serves."""
        self._log.seek(0, os.SEEK_END)
        before = self._log.tell()
        process = self._start(words)
        printed = b""
        with (self._directory / "output").open("rb") as output:
            output.seek(before)
            while _SERVES not in printed:
                if process.poll() is not None:
                    raise self._failure(line, f"{shlex.join(words)!r} ended")
                printed += output.read()

    def _start(
        self, words: list[str], *, stdin: int = subprocess.DEVNULL, fds: list[int] | None = None
    ) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            words,
            cwd=self._directory,
            env={**self._environment, "PYTHONWARNINGS": "error"},
            stdin=stdin,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=fds or [],
        )
        self._stack.callback(_end, process)
        return process

    def _failure(self, line: int, what: str) -> SnippetFailedError:
        self._log.flush()
        output = (self._directory / "output").read_text(errors="replace")[-5000:]
        return SnippetFailedError(f"{self._name}:{line}: {what}\n{output}")


def _local_install(command: str, target: Path) -> list[str]:
    assert command.split()[2:3] in (["."], ["'.[demo]'"]), f"not a path of this project: {command}"
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--root-user-action=ignore"]
    return [sys.executable, "-m", "pip", "install", *options, "--target", str(target), "."]


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    finally:
        process.kill()
        process.wait()
