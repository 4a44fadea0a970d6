"""How far a client is in reading one task."""

import random
from dataclasses import dataclass, field

from stoker.service import messages as m

RECONNECT_FIRST, RECONNECT_LONGEST = 0.05, 2.0
"""Seconds until a broken connection is tried again, doubling."""


@dataclass
class TaskCursor:
    """The reading of one task.

    Attributes:
        connection: the open or opening connection; ``None`` while waiting to try again.
        open: the worker has answered on it.
        next_frame: the first frame not received.
        consumed: the first frame the user has not taken the whole of.
        reported: the value of `consumed` the worker knows.
        ended: the worker said that there is no more; another client may still give some back.
        confirmed: the worker is asked, or was, whether it is the end still.
        lost: the worker is gone; nothing more will be received.
        attempts: how often connecting failed since it last succeeded.
        try_at: when to try again.
        reason: what went wrong last.
        counts: what the task had counted when the worker said so last.
    """

    task: m.TaskInfo
    connection: int | None = None
    open: bool = False
    next_frame: int = 0
    consumed: int = 0
    reported: int = 0
    ended: bool = False
    confirmed: bool = False
    lost: bool = False
    attempts: int = 0
    try_at: float = 0.0
    reason: str = ""
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Nothing more is expected."""
        return self.ended or self.lost

    def postpone(self, reason: str, now: float, rng: random.Random) -> None:
        """It is to be tried again after a while, the longer the more often it failed."""
        self.connection, self.open, self.reason = None, False, reason
        delay = min(RECONNECT_FIRST * 2**self.attempts, RECONNECT_LONGEST)
        self.attempts += 1
        self.try_at = now + delay * rng.uniform(0.5, 1.0)

    def __str__(self) -> str:
        state = f" ({self.reason})" if self.reason else "" if self.open else " (connecting)"
        return f"worker {self.task.worker}{state}"
