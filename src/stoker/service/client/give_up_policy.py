"""The decision when a client raises instead of waiting longer."""

from stoker.errors import UnavailableError
from stoker.service import messages as m
from stoker.wire import frames as f

DISPATCHER_TIMEOUT = 10.0
"""Seconds without the dispatcher and without any worker to read from until the client gives up,
unless the dispatcher keeps a journal: then it has told how long to wait."""

SPLITS_TIMEOUT = 60.0
"""Seconds without the dispatcher and without an element until the client gives up, if workers need
the dispatcher for their splits."""


WORKERS_TIMEOUT = 30.0
"""Seconds without any worker, after one was lost, until a deterministic epoch gives up."""


def is_progress(message: f.Message) -> bool:
    """Return whether a message of a worker shows that it has elements.

    Only frames do, and the announcement of elements that wait for credit. A worker that waits for
    splits sends the others too: statistics twice a second, the rest with every new connection.
    """
    return isinstance(message, f.Frame) or (isinstance(message, f.Ready) and message.elements > 0)


class GiveUpPolicy:
    """Decide when a client stops waiting for an unreachable dispatcher.

    Args:
        dispatcher_address: for error messages.
        connect_timeout: seconds to wait for the dispatcher's first answer.
        needs_splits: workers ask the dispatcher for splits, so they soon stop without it.
        now: seconds, on the clock of all later calls.

    Attributes:
        unreachable_since: time at which the dispatcher was lost; ``None`` while it is reachable.
        reason: the reason that it could not be reached last, or "".
    """

    def __init__(
        self, dispatcher_address: str, connect_timeout: float, needs_splits: bool, now: float
    ) -> None:
        self.unreachable_since: float | None = now
        self.reason = ""
        self._dispatcher_address = dispatcher_address
        self._connect_timeout = connect_timeout
        self._needs_splits = needs_splits
        self._welcomed = False
        self._stopped = False
        self._patience = 0.0
        self._last_progress = now
        self._without_worker: float | None = None

    def session_lost(self, now: float, reason: str = "") -> None:
        """Record that the dispatcher cannot be reached."""
        self.reason = reason
        if self.unreachable_since is None:
            self.unreachable_since = now

    def welcomed(self, patience_ms: int) -> None:
        """Record that the dispatcher answers.

        Args:
            patience_ms: as `dispatcher_patience_ms` of `ClientWelcome`.
        """
        self.unreachable_since = None
        self.reason = ""
        self._welcomed = True
        self._stopped = False
        self._patience = patience_ms / 1000

    def dispatcher_stopped(self) -> str:
        """Record that the dispatcher ends, so waiting for it has no use; return a warning."""
        self._stopped = True
        return (
            f"the dispatcher at {self._dispatcher_address} was stopped; it keeps no journal, so "
            "this iteration ends with an error after the elements that workers still deliver"
        )

    def is_hopeless(self, now: float) -> bool:
        """Return whether the dispatcher has probably ended."""
        since = self.unreachable_since
        return self._stopped or (since is not None and now - since >= DISPATCHER_TIMEOUT)

    def dispatcher(self) -> str:
        """Return its address, why it cannot be reached, and how long to wait for it."""
        waits = ""
        if not self._welcomed:
            waits = f" for up to {self._connect_timeout:g} s"
        elif self._patience:
            waits = f" for up to {self._patience:g} s, since it keeps a journal"
        return f"the dispatcher at {self._dispatcher_address}{self._why}{waits}"

    @property
    def _why(self) -> str:
        return f" ({self.reason})" if self.reason else ""

    def worker_message(self, message: f.Message, now: float) -> None:
        """Record that a worker sent a message."""
        if is_progress(message):
            self._last_progress = now

    def error(self, now: float, reading: bool, buffered: bool) -> UnavailableError | None:
        """Return the error to raise; ``None`` to wait longer.

        Args:
            now: seconds.
            reading: there is a worker to read from.
            buffered: elements have arrived that are not consumed.
        """
        if self.unreachable_since is None:
            return None
        seconds = now - self.unreachable_since
        # A trainer may be started before its dispatcher.
        if not self._welcomed:
            if seconds < self._connect_timeout:
                return None
            return UnavailableError(
                f"no dispatcher answered at {self._dispatcher_address} within {seconds:.0f} s"
                f"{self._why}; start it with `stoker dispatcher`, or correct the address"
            )
        if seconds < (self._patience or DISPATCHER_TIMEOUT) and not self._stopped:
            return None
        # Without the dispatcher a worker under DYNAMIC gets no splits, and would be waited for
        # without end.
        silent = 0.0 if buffered else min(seconds, now - self._last_progress)
        patience = min(SPLITS_TIMEOUT, self._patience or SPLITS_TIMEOUT)
        longest = DISPATCHER_TIMEOUT if self._stopped else patience
        if reading and not (self._needs_splits and silent >= longest):
            return None
        if self._stopped:
            return UnavailableError(
                f"the dispatcher at {self._dispatcher_address} was stopped, and no worker has "
                "anything to read; the rest of this iteration cannot be read"
            )
        return UnavailableError(
            f"the dispatcher at {self._dispatcher_address} has not answered for {seconds:.0f} s"
            f"{self._why} and no worker has anything to read; the rest of this iteration cannot be "
            f"read. {self._advice}"
        )

    def no_worker(self, now: float, lost: m.TaskLost | None) -> UnavailableError | None:
        """Return the error of a read that waits for another worker; ``None`` to wait longer.

        Args:
            now: seconds.
            lost: the last worker, if there is none any more.
        """
        if lost is None:
            self._without_worker = None
            return None
        if self._without_worker is None:
            self._without_worker = now
        seconds = now - self._without_worker
        if seconds < WORKERS_TIMEOUT:
            return None
        return UnavailableError(
            f"no worker has been left for {seconds:.0f} s; the last one, {lost.worker}, was lost: "
            f"{lost.reason}. Start workers, and read on from a state of the iterator"
        )

    @property
    def _advice(self) -> str:
        if self._patience:
            return (
                "Start the dispatcher on its work_dir before clients give up "
                f"(`dispatcher_patience_ms`, {self._patience * 1000:.0f}), and read again"
            )
        return (
            "Start the dispatcher and read again; clients wait for one that keeps a journal "
            "(`fault_tolerant_mode`)"
        )
