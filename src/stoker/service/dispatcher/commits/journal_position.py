"""Positions of the journal: messages carry them to peers, and hellos bring them back.

A journal that has lost its end, such as a restored copy, is a valid journal of an earlier time.
Only the peers know that there was more. What was decided then would be decided again.
"""

import msgspec

from stoker.errors import DataLossError, PermissionDeniedError
from stoker.service import messages as m
from stoker.service.dispatcher.actions import Action, Send
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.keys import are_equal, position_signature


class OutdatedJournalError(DataLossError):
    """The journal does not contain all that peers have received; it ends the dispatcher."""


# A journal that lost its end is a valid journal of an earlier time, so peers keep the position that
# they depend on. (docs/decisions/044)
class JournalPositions:
    """Sign the positions of a journal, and check those of hellos.

    Args:
        ledger: the state, which has the key.
        work_dir: the place of the journal, for messages.
    """

    def __init__(self, ledger: Ledger, work_dir: str | None) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._work_dir = work_dir
        self._last = self._signed(ledger.position)

    def attach(self, actions: list[Action]) -> list[Action]:
        """Return the actions with the position of the last record in their messages.

        They are executed when that record is durable.
        """
        # One signature for each unit, not for each message. (docs/decisions/044)
        if self._last.position != self._ledger.position:
            self._last = self._signed(self._ledger.position)
        return [
            Send(action.peer, msgspec.structs.replace(action.message, journal_position=self._last))
            if isinstance(action, Send)
            else action
            for action in actions
        ]

    def check(self, hello: m.WorkerHello | m.ClientHello | m.SupervisorHello) -> None:
        """Check the position that a peer of this journal has received.

        Raises:
            PermissionDeniedError: if this journal has not signed it.
            OutdatedJournalError: if the journal does not contain it.
        """
        given = hello.journal_position
        # Peers of another journal begin anew, so their positions say nothing here.
        if given is None or given.journal_id != self._state.history.journal_id:
            return
        expected = self._signed(given.position, given.boot)
        if not are_equal(given.signature, expected.signature):
            raise PermissionDeniedError(
                f"`journal_position` {given.position} is not signed by this dispatcher's journal"
            )
        if given.position > self._end_of(given.boot):
            raise OutdatedJournalError(self._explanation(hello, given.position))

    def _signed(self, position: int, boot: int | None = None) -> m.JournalPosition:
        boot = self._ledger.boot if boot is None else boot
        history = self._state.history
        signature = position_signature(history.position_key, history.journal_id, boot, position)
        return m.JournalPosition(history.journal_id, boot, position, signature)

    def _end_of(self, boot: int) -> int:
        """Return the last position that a dispatcher of this journal has written.

        A boot that the journal does not contain is older than those that are kept, or lost.
        """
        boots = list(self._state.history.boots)
        following = boots.index(boot) + 1 if boot in boots else 0
        if following == len(boots):
            return self._ledger.position
        return self._state.history.boots[boots[following]]

    def _explanation(
        self, hello: m.WorkerHello | m.ClientHello | m.SupervisorHello, position: int
    ) -> str:
        if isinstance(hello, m.WorkerHello):
            peer = f"worker {hello.address}"
        elif isinstance(hello, m.ClientHello):
            peer = f"client {hello.client_id} of job {hello.job!r}"
        else:
            peer = "the supervisor of workers"
        start = self._state.history.boots[self._ledger.boot]
        return (
            f"the journal in `work_dir` {self._work_dir} has lost its end or is an older copy: it "
            f"ended at position {start} when this dispatcher started, and {peer} has received "
            f"position {position}, which it does not contain. Its decisions would be made again, "
            "and elements delivered twice. Restore the newer files; or stop all trainers and "
            "workers and start them again; or name an empty `work_dir`"
        )
