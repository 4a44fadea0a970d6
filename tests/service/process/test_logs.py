"""The format of the lines of servers."""

import json
import logging
import re
import subprocess
import sys

import pytest

from stoker.service.process.logs import is_log_line

PROGRAM = """
import logging
from stoker.service.process.logs import LogOptions, log_to_stderr
log_to_stderr(LogOptions("info", %r))
logger = logging.getLogger("stoker.test")
logger.debug("too fine")
fields = {"worker": "host:1", "job": "train", "epoch": "4", "task": 663944629357379588}
logger.info("a task begins", extra=fields)
logger.warning("%%d lost", 3, extra={"epoch": "4.0", "client": 7})
"""


def written(kind: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM % kind]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()


def test_text_lines_have_time_level_text_and_fields():
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    first, second = written("text")
    assert re.fullmatch(
        rf"{time} INFO    a task begins  \[worker=host:1 job=train "
        r"epoch=4 task=663944629357379588\]",
        first,
    )
    assert re.fullmatch(rf"{time} WARNING 3 lost  \[epoch=4.0 client=7\]", second)


def test_json_lines_have_values_that_every_reader_can_hold():
    first, second = (json.loads(line) for line in written("json"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", first.pop("time"))
    assert first == {
        "level": "INFO",
        "logger": "stoker.test",
        "message": "a task begins",
        "worker": "host:1",
        "job": "train",
        "epoch": 4,
        "task": "663944629357379588",
    }
    assert (second["level"], second["message"]) == ("WARNING", "3 lost")
    assert (second["epoch"], second["client"]) == ("4.0", "7")


def test_uncaught_errors_and_warnings_are_lines_of_json():
    program = """
import threading, warnings
from stoker.service.process.logs import LogOptions, log_to_stderr
log_to_stderr(LogOptions("info", "json"))
warnings.warn("old")
thread = threading.Thread(target=lambda: [][1])
thread.start()
thread.join()
class Closing:
    def __del__(self): raise OSError("late")
Closing()
raise ValueError("wrong")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    warned, in_thread, in_del, in_main = (json.loads(line) for line in done.stderr.splitlines())
    assert "UserWarning: old" in warned["message"]
    assert "IndexError" in in_thread["exc_info"]
    assert "OSError: late" in in_del["exc_info"]
    assert "ValueError: wrong" in in_main["exc_info"]
    assert [each["level"] for each in (in_thread, in_del, in_main)] == ["CRITICAL"] * 3
    assert done.returncode == 1


@pytest.mark.parametrize("kind", ["text", "json"])
def test_log_lines_are_recognized(kind):
    assert all(is_log_line(line.encode()) for line in written(kind))
    assert not is_log_line(b"ValueError: 2026-11-22")
    assert not is_log_line(b'  File "train.py", line 3')


def test_library_does_not_configure_logging():
    program = "import logging, stoker.service; print(logging.getLogger().handlers)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert logging.getLogger("stoker").level == logging.NOTSET


@pytest.mark.parametrize(("users", "records"), [("pass", 0), ("hpack.setLevel('DEBUG')", 1)])
def test_hpack_logs_headers_only_if_the_user_asks(users, records):
    program = f"""
import logging
logging.basicConfig(level=logging.DEBUG, format="%(name)s")
hpack = logging.getLogger("hpack")
{users}
import stoker.service.control.rpc
from hpack import Encoder
Encoder().encode([("stoker", "1")])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert bool(done.stderr.count("hpack")) == bool(records)
