"""What a worker process writes at its end, which names the cause of its death."""

import logging
import signal
import sys

import pytest

from stoker.service.config import WorkerConfig
from stoker.service.process.logs import TextFormatter, json_line
from stoker.service.worker.processes.output_pump import LastWords
from stoker.service.worker.processes.process import WorkerProcess

CONFIG = WorkerConfig(dispatcher_address="localhost:1")


def _entry(kind: str) -> str:
    """Return a log entry with the traceback of an error of another job."""
    try:
        raise ZeroDivisionError("of another job")
    except ZeroDivisionError:
        error = sys.exc_info()
    if kind == "json":
        return json_line(logging.ERROR, "stoker.worker", "a task failed", exc_info=error)
    record = logging.LogRecord("stoker", logging.ERROR, "", 1, "a task failed", (), error)
    return TextFormatter().format(record)


def _words(*texts: str, end: float = 0.0) -> tuple[str, ...]:
    """Return the last words of a process that has written some texts at 0 s."""
    words = LastWords()
    for line in "\n".join(texts).split("\n"):
        words.add(line.encode(), 0.0)
    return words.at(end)


@pytest.mark.parametrize("kind", ["text", "json"])
def test_what_was_logged_is_no_cause(kind):
    assert _words("printed before", _entry(kind)) == ()
    assert _words(_entry(kind), "terminate called", _entry(kind)) == ()
    assert _words(_entry(kind), "terminate called", "    what(): no") == (
        "terminate called",
        "what(): no",
    )


def test_what_was_printed_long_before_the_end_is_no_cause():
    assert _words("loading", end=9.0) == ("loading",)
    assert _words("loading", end=11.0) == ()


def test_carets_of_a_traceback_are_left_out():
    traceback = ["  File 'a.py', line 4, in f", "    x // 0", "    ~~^^~~", "ValueError: no"]
    assert _words(*traceback) == ("File 'a.py', line 4, in f", "x // 0", "ValueError: no")


def test_a_dump_of_threads_is_cut_after_the_code_that_ran():
    dump = ["", "Current thread 0x1 (most recent call first):", "  File 'a.py', line 4 in f", ""]
    others = ["Thread 0x2:", "  File 'threading.py', line 9 in wait", "Extension modules: numpy"]
    assert _words("printed", "Fatal Python error: Aborted", *dump, *others) == (
        "Fatal Python error: Aborted",
        "Current thread 0x1 (most recent call first):",
        "File 'a.py', line 4 in f",
    )


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("os._exit(9)", "ended with exit code 9"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "was killed by SIGKILL (out of memory, or kill -9)",
        ),
        ("sys.exit('no disk')", "ended with exit code 1: no disk"),
    ],
)
def test_a_death_is_not_explained_by_an_older_error(end, expected):
    script = f"""
import logging, os, signal, sys
from stoker.service.process.logs import LogOptions, log_to_stderr
log_to_stderr(LogOptions())
try:
    1 // 0
except ZeroDivisionError:
    logging.getLogger("stoker").exception("a task of job alice failed")
{"print('printed', file=sys.stderr)" if "SIGKILL" in end else ""}
{end}
"""
    process = WorkerProcess(CONFIG, command=(sys.executable, "-c", script))
    try:
        assert str(process.wait(60)) == expected
    finally:
        process.stop()


def test_a_crash_in_native_code_names_the_function():
    script = "import faulthandler\ndef crash():\n    faulthandler._sigsegv()\ncrash()"
    process = WorkerProcess(CONFIG, command=(sys.executable, "-X", "faulthandler", "-c", script))
    try:
        end = process.wait(60)
    finally:
        process.stop()
    assert end.returncode == -signal.SIGSEGV
    assert end.last_lines[0] == "Fatal Python error: Segmentation fault"
    assert end.last_lines[2].endswith("in crash")
