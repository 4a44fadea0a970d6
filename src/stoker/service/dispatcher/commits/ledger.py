"""The only writer of the dispatcher's state, and the source of ids and seeds."""

import random

import msgspec

from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.changes import apply_and_log, check
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State
from stoker.service.keys import KEY_BYTES

IDS_RESERVED = 1 << 20
"""Ids that one record reserves. Those that were told when the dispatcher ends are not given again,
though some are in no record."""

_ENCODE = msgspec.msgpack.Encoder().encode


class Ledger:
    """The state of a dispatcher, changed by committed records only.

    Args:
        rng: generates ids and seeds.
        state: of an earlier dispatcher that is continued; by default a new one.
        journaled: keep the encoded records for `take_unit`.

    Attributes:
        state: read-only for others; changed by `commit`.
        commits: the number of records applied.
        events: the lines of the log.
        boot: identifies this dispatcher among those of its journal.
    """

    def __init__(
        self, rng: random.Random, state: State | None = None, journaled: bool = False
    ) -> None:
        self.state = State() if state is None else state
        self.commits = 0
        self.events = EventLog()
        self._rng = rng
        self._journaled = journaled
        self._unit: list[msgspec.Raw] = []
        # Ids start at random: those of a dispatcher without a journal must not name things of its
        # successor.
        first = self.state.history.ids_end or rng.getrandbits(40) << 20
        self._next_id = first
        journal_id = self.state.history.journal_id or f"{rng.getrandbits(64):016x}"
        position_key = b"" if self.state.history.position_key else self.new_key()
        self.boot = rng.getrandbits(63)
        self.commit(r.Booted(journal_id, first, first + IDS_RESERVED, self.boot, position_key))

    @property
    def journal_id(self) -> str:
        """Identifies this history among those of other dispatchers."""
        return self.state.history.journal_id

    @property
    def position(self) -> int:
        """Position in the journal of the unit with the last record."""
        return self.state.history.position + bool(self._unit)

    # A wrong record would fail at every restart, so records are checked before anything changes.
    # (docs/decisions/046)
    def commit(self, record: Record) -> None:
        """Apply a record.

        Raises:
            ImpossibleRecordError: if it does not fit the state.
            Exception: if it cannot be encoded for the journal.
        """
        check(self.state, record)
        # Before the change: an address that is no UTF-8 text must change nothing.
        encoded = _ENCODE(record) if self._journaled else b""
        self.commits += 1
        apply_and_log(self.state, self.events, record)
        if self._journaled:
            self._unit.append(msgspec.Raw(encoded))

    def take_unit(self) -> bytes:
        """Return the records since the last call, encoded as one list; ``b""`` if there are none.

        Always ``b""`` without a journal.
        """
        if not self._unit:
            return b""
        unit, self._unit = self._unit, []
        self.state.history.position += 1
        return _ENCODE(unit)

    def new_id(self) -> int:
        """Return an id that is greater than all before."""
        given = self._next_id
        if given == self.state.history.ids_end:
            self.commit(r.IdsReserved(given + IDS_RESERVED))
        self._next_id += 1
        return given

    def new_key(self) -> bytes:
        """Return a new key for a task, client or worker."""
        return self._rng.getrandbits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "little")

    def new_seed(self) -> int:
        """Return a new seed for an iteration or a task."""
        return self._rng.getrandbits(63)
