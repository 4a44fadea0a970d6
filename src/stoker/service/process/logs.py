"""The log of servers in processes of their own: lines of text or of JSON on standard error.

A line has the time, the level, a text, and fields that name its subject: `FIELDS`. In another
program's process, stoker only writes to its loggers, below ``"stoker"``.
"""

import functools
import logging
import re
import sys
import threading
from typing import Any, Literal

import msgspec

FIELDS = ("worker", "job", "epoch", "task", "client")
"""Attributes of a log record that name its subject; given by ``extra``."""


class LogOptions(msgspec.Struct, frozen=True):
    """Level and format of a process's log."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    format: Literal["text", "json"] = "text"


_LINE = re.compile(rb'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+ |\{"time": ')


_INDENT = "    "
"""Begins the further lines of an entry, such as lines of a traceback."""


def is_log_line(line: bytes) -> bool:
    """Return whether a line of a process's standard error is the beginning of a log entry."""
    return _LINE.match(line) is not None


def continues_entry(line: bytes) -> bool:
    """Return whether a line that follows a log entry belongs to the entry."""
    return line.startswith(_INDENT.encode())


def epoch_text(epoch: tuple[int, ...]) -> str:
    """Return the "epoch" field of an iteration: "3", or "3.0" in an outer and an inner repeat."""
    return ".".join(map(str, epoch))


class TextFormatter(logging.Formatter):
    """Format ``TIME LEVEL TEXT (worker=..., job=...)`` with the fields that a record has."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry; its lines after the first are indented (`continues_entry`)."""
        return super().format(record).replace("\n", f"\n{_INDENT}")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line, without a traceback."""
        found = [(name, getattr(record, name)) for name in FIELDS if hasattr(record, name)]
        fields = " ".join(f"{name}={value}" for name, value in found)
        return f"{super().formatMessage(record)}{fields and f'  [{fields}]'}"


def log_to_stderr(options: LogOptions) -> None:
    """Write the log of this process to standard error; as JSON, its errors and warnings too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json_formatter() if options.format == "json" else TextFormatter())
    logging.basicConfig(level=options.level.upper(), handlers=[handler])
    if options.format == "json":
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_of
        sys.unraisablehook = _log_uncaught_of


def json_line(level: int, logger: str, message: str, **fields: Any) -> str:
    """Return the line of a record of a JSON log, without an end of line."""
    record = logging.makeLogRecord({"levelno": level, "levelname": logging.getLevelName(level)})
    record.name, record.msg = logger, message
    record.__dict__.update(fields)
    return _json_formatter().format(record)


def _log_uncaught(*error: Any) -> None:
    logging.getLogger("stoker").critical("an exception was not caught", exc_info=error)


def _log_uncaught_of(raised: "threading.ExceptHookArgs | sys.UnraisableHookArgs") -> None:
    _log_uncaught(raised.exc_type, raised.exc_value, raised.exc_traceback)


@functools.cache
def _json_formatter() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    class Formatter(JsonFormatter):
        def process_log_record(self, log_record: dict[str, Any]) -> dict[str, Any]:
            for name in ("task", "client"):  # numbers of 63 bits, which not all readers can hold
                if name in log_record:
                    log_record[name] = str(log_record[name])
            epoch = str(log_record.get("epoch", ""))
            return log_record | ({"epoch": int(epoch)} if epoch.isdecimal() else {})

    names = {"asctime": "time", "levelname": "level", "name": "logger"}
    return Formatter(
        "%(asctime)s %(levelname)s %(name)s %(message)s",
        rename_fields=names,
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
