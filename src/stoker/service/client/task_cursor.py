"""Position and connection of a client that reads one task."""

import random
from dataclasses import dataclass, field

from stoker.service import messages as m
from stoker.service.client.task_reading import TaskReading

RECONNECT_FIRST, RECONNECT_LONGEST = 0.05, 2.0
"""Seconds until a broken connection is opened again; the delay doubles with each attempt."""


_DOUBLINGS = 6
"""Doublings after which the delay exceeds the longest."""


@dataclass
class TaskCursor:
    """Position and connection of one task.

    Attributes:
        connection: the open or opening connection; ``None`` while waiting to reconnect.
        open: the worker has answered on it.
        next_frame: the first frame that has not been received.
        consumed: the first frame that the user has not consumed completely.
        reported: the value of `consumed` last sent to the worker.
        ended: the worker has sent `End`; other clients may still give elements back.
        confirmed: the worker was asked to confirm the end.
        read: `End` was received at least once, and the dispatcher notified.
        lost: the worker was removed; nothing more will be received.
        leaving: the dispatcher has asked the client to leave the task; nothing more is received.
        left: all that had arrived is consumed, and the rest was given back.
        attempts: the number of failed attempts to connect since the last success.
        try_at: time of the next attempt.
        reason: the last error.
        counts: the task's totals as last received.
        reading: the amounts received, and where the time of the task goes.
    """

    task: m.TaskInfo
    connection: int | None = None
    open: bool = False
    next_frame: int = 0
    consumed: int = 0
    reported: int = 0
    ended: bool = False
    confirmed: bool = False
    read: bool = False
    lost: bool = False
    leaving: bool = False
    left: bool = False
    attempts: int = 0
    try_at: float = 0.0
    reason: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    reading: TaskReading = field(default_factory=TaskReading)

    @property
    def over(self) -> bool:
        """True if no more frames are expected."""
        return self.ended or self.lost or self.leaving

    def postpone(self, reason: str, now: float, rng: random.Random) -> None:
        """Schedule another attempt to connect, after a delay that doubles with each failure."""
        self.connection, self.open, self.reason = None, False, reason
        # Bounded: the power of an unbounded number of attempts exceeds the range of floats.
        delay = min(RECONNECT_FIRST * 2 ** min(self.attempts, _DOUBLINGS), RECONNECT_LONGEST)
        self.attempts += 1
        self.try_at = now + delay * rng.uniform(0.5, 1.0)

    def __str__(self) -> str:
        state = f" ({self.reason})" if self.reason else "" if self.open else " (connecting)"
        return f"worker {self.task.worker}{state}"
