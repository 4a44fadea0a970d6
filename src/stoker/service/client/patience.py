"""How long a client does without what it needs before it raises."""

from stoker.errors import UnavailableError

DISPATCHER_PATIENCE = 10.0
"""Seconds without dispatcher and without any worker to read from; then the client gives up."""

SPLITS_PATIENCE = 60.0
"""Seconds without dispatcher and without an element; then a client whose workers need the
dispatcher for their splits gives up."""


class Patience:
    """Watches for what is hopeless.

    Args:
        service: the dispatcher's address, for messages.
        connect_timeout: seconds to wait for the dispatcher at first.
        needs_splits: workers cannot go on for long without the dispatcher.
        now: seconds, on the clock of all later calls.

    Attributes:
        out_since: since when there has been no dispatcher; ``None`` while there is one.
    """

    def __init__(
        self, service: str, connect_timeout: float, needs_splits: bool, now: float
    ) -> None:
        self.out_since: float | None = now
        self._service = service
        self._connect_timeout = connect_timeout
        self._needs_splits = needs_splits
        self._welcomed = False
        self._heard_at = now

    def session_lost(self, now: float) -> None:
        """The dispatcher cannot be reached."""
        if self.out_since is None:
            self.out_since = now

    def welcomed(self) -> None:
        """The dispatcher answers."""
        self.out_since = None
        self._welcomed = True

    def heard(self, now: float) -> None:
        """A worker said something."""
        self._heard_at = now

    def exhausted(self, now: float, reading: bool, supplied: bool) -> UnavailableError | None:
        """Why to give up, if it is time to.

        Args:
            now: seconds.
            reading: there is a worker to read from.
            supplied: something has arrived that the user has not taken.
        """
        if self.out_since is None:
            return None
        out = now - self.out_since
        if not self._welcomed:
            if out < self._connect_timeout:
                return None
            return UnavailableError(
                f"no dispatcher answered at {self._service} within {out:.0f} s; start it with "
                "`stoker dispatcher`, or correct the address"
            )
        silent = 0.0 if supplied else min(out, now - self._heard_at)
        starved = self._needs_splits and silent >= SPLITS_PATIENCE
        if not starved and (reading or out < DISPATCHER_PATIENCE):
            return None
        return UnavailableError(
            f"the dispatcher at {self._service} has not answered for {out:.0f} s and no worker has "
            "anything to read; the rest of this iteration cannot be had"
        )
