"""Losses of other clients, which may be known only after the end of the epoch."""

from stoker.service import messages as m

ANSWER_SECONDS = 1.0
"""Longest wait for the dispatcher's answer at the end, unless losses are raised. It comes within
milliseconds, and so do the reports of workers on the last elements."""

ASK_AGAIN_SECONDS = 1.0
"""Interval of the questions for losses while a client that may hold elements does not answer."""


class FinalLosses:
    """Decides whether the end waits until the losses of other clients are known.

    A client that does not answer may hold elements: they are lost when its lease ends, unless it
    comes back. Clients that answer are not waited for.

    Args:
        raised: losses are raised, so the end waits for the leases of silent clients.

    Attributes:
        asked: the dispatcher was asked.
        known: no client holds an element any more, so that no loss will be added.
    """

    def __init__(self, *, raised: bool) -> None:
        self.asked = self.known = False
        self._raised = raised
        self._since: float | None = None
        self._asked_at: float | None = None
        self._answer: m.EndState | None = None

    def must_ask(self, now: float) -> bool:
        """Return whether to send `ReadToEnd` now."""
        if self._asked_at is not None and now - self._asked_at < ASK_AGAIN_SECONDS:
            return False
        self._since = now if self._since is None else self._since
        self._asked_at, self.asked = now, True
        return True

    def changed(self) -> None:
        """Ask again immediately: the dispatcher has notified this client of a change."""
        self._asked_at = None

    def answered(self, answer: m.EndState) -> str | None:
        """Handle the answer; return a warning for the user, once."""
        first = self._answer is None or not self._answer.silent_ms
        self._answer, self.known = answer, answer.final
        if not (answer.silent_ms and first):
            return None
        seconds = -(-answer.silent_ms // 1000)
        rest = (
            "this epoch ends then, unless the client comes back (`on_loss`)"
            if self._raised
            else "this epoch ends without them"
        )
        return (
            "another client of this epoch does not answer and may hold elements. If they are lost, "
            f"`stoker status` counts them in {seconds} s, when its lease ends "
            f"(`client_timeout_ms`); {rest}"
        )

    def awaited(self, now: float, *, reachable: bool) -> bool:
        """Return whether the end waits for an answer, or for the lease of a silent client.

        Args:
            now: seconds.
            reachable: the dispatcher can be reached.
        """
        # A client that holds elements and answers may never read on: two iterators of one job in
        # one thread would wait for each other. (docs/decisions/063)
        answer = self._answer
        if answer is not None and (answer.final or answer.held):
            return self._raised and answer.silent_ms > 0
        waits = self._since is None or now - self._since < ANSWER_SECONDS
        return self._raised or (reachable and waits)
