"""Position and connection of a client that reads one task."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stoker.service import messages as m
from stoker.service.client.measure.task_reading import TaskReading
from stoker.wire.addresses import is_loopback

RECONNECT_FIRST, RECONNECT_LONGEST = 0.05, 2.0
"""Seconds until a broken connection is opened again; the delay doubles with each attempt."""


_DOUBLINGS = 6
"""Doublings after which the delay exceeds the longest."""

UNREACHABLE_SECONDS = 5.0
"""Time for which attempts to connect fail until the user is warned, once, also if other workers
deliver: what this worker has computed waits there, and the epoch ends only with it."""


@dataclass
class TaskCursor:
    """Position and connection of one task.

    Attributes:
        connection: the open or opening connection; ``None`` while waiting to reconnect.
        open: the worker has answered on it.
        next_frame: the first frame that has not been received.
        consumed: the first frame that the user has not consumed completely.
        reported: the value of `consumed` last sent to the worker.
        ended: the worker has sent `TaskEnd`; other clients may still give elements back.
        confirmed: the worker was asked to confirm the end.
        read: `TaskEnd` was received at least once, and the dispatcher notified.
        lost: the worker was removed; nothing more will be received.
        leaving: the dispatcher has asked the client to leave the task; nothing more is received.
        left: all that had arrived is consumed, and the rest was given back.
        given_back: the first frame that is given back to a worker that drains, until it confirms.
        acknowledged: the connection on which a worker that drains was told that all frames before
            a number have arrived, and that number.
        attempts: the number of failed attempts to connect since the last success.
        try_at: time of the next attempt.
        dialed_at: time of the first attempt since the worker sent something; ``None`` before it.
        reached: the worker has sent something.
        warned: `unreachable` has returned a warning since the worker sent something.
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
    given_back: int | None = None
    acknowledged: tuple[int | None, int] = (None, 0)
    attempts: int = 0
    try_at: float = 0.0
    dialed_at: float | None = None
    reached: bool = False
    warned: bool = False
    reason: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    reading: TaskReading = field(default_factory=TaskReading)

    @property
    def over(self) -> bool:
        """True if no more frames are expected."""
        return self.ended or self.lost or self.leaving

    @property
    def waits(self) -> bool:
        """True if the task waits to be connected."""
        needed = not self.leaving or self.given_back is not None
        return self.connection is None and needed and not self.lost

    def dial(self, connection: int, now: float) -> None:
        """Record an attempt to connect."""
        self.connection = connection
        # Of a row of failed attempts the first counts for the warning.
        self.dialed_at = now if self.dialed_at is None else self.dialed_at

    def heard(self) -> None:
        """Record that the worker sent something."""
        self.dialed_at, self.reached, self.warned = None, True, False

    # A trainer warns after 5 s even while reading from other workers: the epoch cannot end without
    # what this worker has computed. (docs/decisions/005)
    def unreachable(self, now: float, *, keeps: bool = True) -> str | None:
        """Return a warning if attempts to connect have failed for long, once in a row of them.

        Args:
            now: seconds.
            keeps: the worker keeps what it has computed; otherwise other workers are asked for it.
        """
        since = self.dialed_at
        if self.warned or self.over or since is None or not self.reason:
            return None
        if now - since < UNREACHABLE_SECONDS:
            return None
        self.warned = True
        return (
            f"worker {self.task.worker} has not been reached from here for {now - since:.0f} s: "
            f"{self.reason}. {self._consequence(keeps)}"
        )

    def _consequence(self, keeps: bool) -> str:
        if keeps:
            return f"The elements that it has computed wait there; {self._remedy}"
        remedy = "it is asked again when it can be reached" if self.reached else self._remedy
        return f"Other workers compute what was asked of it; {remedy}"

    @property
    def _remedy(self) -> str:
        if self.reached:
            return "they are read when it can be reached, or lost when the dispatcher removes it"
        address = self.task.data_transfer_addresses.get("tcp", self.task.worker)
        if is_loopback(address.rpartition(":")[0].strip("[]")):
            return (
                "its address is one of its own machine: for trainers on others start it with "
                "--host 0.0.0.0 --insecure (`host`, `insecure`)"
            )
        return (
            "open its port to this machine, or let it advertise an address that this machine "
            "reaches (`worker_address`)"
        )

    def postpone(self, reason: str, now: float, rng: random.Random) -> None:
        """Schedule another attempt to connect, after a delay that doubles with each failure."""
        self.connection, self.open, self.reason = None, False, reason
        # With jitter, as many clients lose a worker at one moment.
        # Bounded: the power of an unbounded number of attempts exceeds the range of floats.
        delay = min(RECONNECT_FIRST * 2 ** min(self.attempts, _DOUBLINGS), RECONNECT_LONGEST)
        self.attempts += 1
        self.try_at = now + delay * rng.uniform(0.5, 1.0)

    def reading_at(self, waited: float) -> TaskReading:
        """Return a copy of `reading` for other threads.

        Args:
            waited: the seconds that the reader has waited until now.
        """
        ended = self.reading.ended_after
        return replace(
            self.reading,
            worker=self.task.worker,
            lost=self.lost,
            waited_since_end=None if ended is None else waited - ended,
        )

    def __str__(self) -> str:
        evidence = self.reading.evidence
        loading = "" if evidence is None else str(evidence.loading or "")
        state = loading if self.open else self.reason or "connecting"
        return f"worker {self.task.worker}{f' ({state})' if state else ''}"


class TaskCounts:
    """Adds up the differences between totals, so that nothing is counted twice.

    Attributes:
        new: the counts since the last `take`, without those of the order.
    """

    def __init__(self) -> None:
        self.new: dict[str, int] = {}
        self._of_order: dict[str, int] = {}

    def add(self, cursor: TaskCursor, totals: dict[str, int]) -> None:
        """Count the totals of a task, of which the last ones were counted before."""
        for name, total in totals.items():
            self.new[name] = self.new.get(name, 0) + total - cursor.counts.get(name, 0)
        cursor.counts = totals

    def take(self, of_order: Mapping[str, int]) -> dict[str, int]:
        """Return the counts since the last call.

        Args:
            of_order: the totals of the order in which tasks are read.
        """
        counts, self.new = self.new, {}
        for name, total in of_order.items():
            if total > (before := self._of_order.get(name, 0)):
                counts[name] = counts.get(name, 0) + total - before
                self._of_order[name] = total
        return counts
