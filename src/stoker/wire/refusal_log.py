"""Log of connections that a server closes because of what their peer did."""

import logging
import threading
import time
from collections.abc import Callable

# Least seconds between two warnings: a port scan must not fill a disk.
WARN_SECONDS = 60.0


class RefusalLog:
    """Log each closed connection at DEBUG, and a warning a minute with their number. Thread-safe.

    Foreign ones are not counted: port scans and health probes are no reason for a warning.

    Args:
        logger: gets the lines.
        now: returns the time in seconds.
    """

    def __init__(self, logger: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logger = logger
        self._lock = threading.Lock()
        self._warned_at: float | None = None
        self._unreported = 0
        self._last = ""

    def add(self, peer: object, reason: object, *, foreign: bool = False) -> None:
        """Log that the connection from `peer` is closed for `reason`.

        Args:
            peer: its address.
            reason: completes the line.
            foreign: the peer has sent nothing of stoker's protocol.
        """
        line = f"connection from {peer} is closed: {reason}"
        self._logger.debug("%s", line)
        if foreign:
            return
        with self._lock:
            self._unreported += 1
            self._last = line
        self.warn_if_due()

    def warn_if_due(self) -> None:
        """Warn of the connections closed since the last warning, if that was a minute ago."""
        now = self._now()
        with self._lock:
            due = self._warned_at is None or now - self._warned_at >= WARN_SECONDS
            if not self._unreported or not due:
                return
            others, line = self._unreported - 1, self._last
            self._unreported, self._warned_at = 0, now
        more = f" (and {others} others since the last warning)" if others else ""
        self._logger.warning("%s%s", line, more)
