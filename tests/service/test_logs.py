"""The format of the lines of servers."""

import json
import logging
import re
import subprocess
import sys

import pytest

from stoker.service.logs import is_log_line

PROGRAM = """
import logging
from stoker.service.logs import LogOptions, log_to_stderr
log_to_stderr(LogOptions("info", %r))
logger = logging.getLogger("stoker.test")
logger.debug("too fine")
logger.info("a task begins", extra={"worker": "host:1", "job": "train", "task": 7})
logger.warning("%%d lost", 3)
"""


def written(kind: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM % kind]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()


def test_text_lines_have_time_level_text_and_fields():
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    first, second = written("text")
    assert re.fullmatch(rf"{time} INFO    a task begins  \[worker=host:1 job=train task=7\]", first)
    assert re.fullmatch(rf"{time} WARNING 3 lost", second)


def test_json_lines_have_the_same_as_values():
    first, second = (json.loads(line) for line in written("json"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", first.pop("time"))
    assert first == {
        "level": "INFO",
        "logger": "stoker.test",
        "message": "a task begins",
        "worker": "host:1",
        "job": "train",
        "task": 7,
    }
    assert (second["level"], second["message"]) == ("WARNING", "3 lost")


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
