"""The one way to change the dispatcher's state, and where ids and seeds come from."""

import random

from stoker.service.dispatcher.records import Record
from stoker.service.dispatcher.state import State


class Ledger:
    """The state and what is written to it.

    Args:
        rng: ids and seeds are drawn from it.

    Attributes:
        state: to be read; changed by `commit` only.
        journal_id: tells this history from that of another dispatcher.
    """

    def __init__(self, rng: random.Random) -> None:
        self.state = State()
        self.journal_id = f"{rng.getrandbits(64):016x}"
        self._rng = rng
        self._last_id = rng.getrandbits(40) << 20

    def commit(self, record: Record) -> None:
        """Applies a record."""
        self.state.apply(record)

    def new_id(self) -> int:
        """An id never given before, greater than all of them."""
        self._last_id += 1
        return self._last_id

    def new_seed(self) -> int:
        """A fresh seed for an iteration or a task."""
        return self._rng.getrandbits(63)
