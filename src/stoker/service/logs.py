"""The log of servers in processes of their own: lines of text or of JSON on standard error.

A line has the time, the level, a text, and fields that name what it concerns: `FIELDS`. In another
program's process, stoker only writes to its loggers, below ``"stoker"``.
"""

import logging
import re
import sys
from typing import Literal

import msgspec

FIELDS = ("worker", "job", "epoch", "task", "client")
"""Attributes of a log record that name what it concerns; given by ``extra``."""


class LogOptions(msgspec.Struct, frozen=True):
    """Level and format of a process's log."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    format: Literal["text", "json"] = "text"


_LINE = re.compile(rb'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+ |\{"time": ')


def is_log_line(line: bytes) -> bool:
    """Return whether a line of a process's standard error is the beginning of a log entry."""
    return _LINE.match(line) is not None


def epoch_text(epoch: tuple[int, ...]) -> str:
    """Return the "epoch" field of an iteration: "3", or "3.0" in an outer and an inner repeat."""
    return ".".join(map(str, epoch))


class TextFormatter(logging.Formatter):
    """Format ``TIME LEVEL TEXT (worker=..., job=...)`` with the fields that a record has."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line, without a traceback."""
        found = [(name, getattr(record, name)) for name in FIELDS if hasattr(record, name)]
        fields = " ".join(f"{name}={value}" for name, value in found)
        return f"{super().formatMessage(record)}{fields and f'  [{fields}]'}"


def log_to_stderr(options: LogOptions) -> None:
    """Write the log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json_formatter() if options.format == "json" else TextFormatter())
    logging.basicConfig(level=options.level.upper(), handlers=[handler])


def _json_formatter() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    names = {"asctime": "time", "levelname": "level", "name": "logger"}
    return JsonFormatter(
        "%(asctime)s %(levelname)s %(name)s %(message)s",
        rename_fields=names,
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
