"""The only writer of the dispatcher's state, and the source of ids and seeds."""

import random

from stoker.service.dispatcher.records import Record
from stoker.service.dispatcher.state import State
from stoker.service.keys import KEY_BYTES


class Ledger:
    """The state of a dispatcher, changed by committed records only.

    Args:
        rng: generates ids and seeds.

    Attributes:
        state: read-only for others; changed by `commit`.
        commits: the number of calls of `commit`, also of one that raised.
        journal_id: identifies this history among those of other dispatchers.
    """

    def __init__(self, rng: random.Random) -> None:
        self.state = State()
        self.commits = 0
        self.journal_id = f"{rng.getrandbits(64):016x}"
        self._rng = rng
        # Ids start at random: those of an earlier dispatcher must not name things of this one.
        self._last_id = rng.getrandbits(40) << 20

    def commit(self, record: Record) -> None:
        """Apply a record. An exception leaves a state that is not to be trusted."""
        self.commits += 1
        self.state.apply(record)

    def new_id(self) -> int:
        """Return an id that is greater than all before."""
        self._last_id += 1
        return self._last_id

    def new_key(self) -> bytes:
        """Return a new key for a task, client or worker."""
        return self._rng.getrandbits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "little")

    def new_seed(self) -> int:
        """Return a new seed for an iteration or a task."""
        return self._rng.getrandbits(63)
