"""Log of the exceptions of user functions: the first of each kind, then their number.

They are logged at INFO: trainers raise them, and a worker in a trainer's process must not print
them too.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from stoker.errors import ErrorRecord

REPORT_SECONDS = 60.0
"""Least seconds between two reports of the exceptions that were only counted."""

MOST_KINDS = 1000
"""Kinds that are counted; of more, the oldest may be logged as new."""


class FailureLog:
    """Log the first exception of each kind, and once a minute the number of others. Thread-safe.

    A kind is an exception class with the node and the line that raised it.

    Args:
        logger: gets the lines.
        now: returns the time in seconds.
    """

    def __init__(self, logger: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._lock = threading.Lock()
        self._others: dict[tuple[str, str, str], int] = {}
        self._reported_at = now()

    def add(self, error: ErrorRecord, fields: dict[str, Any]) -> None:
        """Log an error of a task, or count it; `fields` as `logs.FIELDS`."""
        kind = (error.exception or error.code, error.node, error.site)
        with self._lock:
            others = self._others.get(kind)
            self._others[kind] = 0 if others is None else others + 1
            if len(self._others) > MOST_KINDS:
                del self._others[next(iter(self._others))]
        # Outside the lock: the handler of a log may block.
        if others is None:
            details = f"\n{error.remote_traceback.rstrip()}" if error.remote_traceback else ""
            self._logger.info("%s%s", error.message, details, extra=fields)

    def report_if_due(self, now: float) -> None:
        """Log the numbers of exceptions since the last report, if that was a minute ago."""
        with self._lock:
            if now - self._reported_at < REPORT_SECONDS:
                return
            self._reported_at = now
            repeated = [(kind, others) for kind, others in self._others.items() if others]
            self._others |= {kind: 0 for kind, _ in repeated}
        for (exception, node, site), others in repeated:
            place = f" of `{node}` ({site})" if node else ""
            self._logger.info("%d more %s%s in the last minute", others, exception, place)
