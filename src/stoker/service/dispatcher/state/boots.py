"""Starts of dispatchers, and the ids that they give."""

from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State

KEPT_BOOTS = 100
"""Latest starts of dispatchers that are known; positions of earlier ones are accepted."""


class Booted(Record, frozen=True):
    """A dispatcher has started; it gives ids from `first_id` up to, but not, `ids_end`.

    `journal_id` identifies this history among those of other dispatchers, and `boot` this start
    among all. `position_key` signs positions of the journal; only the first record has one.
    """

    journal_id: str
    first_id: int
    ids_end: int
    boot: int
    position_key: bytes = b""

    def fits(self, state: State) -> bool:
        """Return whether this is the journal of the state, and the ids are new."""
        known, ids_end = state.history.journal_id, state.history.ids_end
        # A new state has no journal yet.
        same = bool(self.journal_id) and known in ("", self.journal_id)
        return same and ids_end <= self.first_id < self.ids_end

    def apply(self, state: State) -> None:
        """Note the start."""
        history, boots = state.history, state.history.boots
        history.journal_id, history.ids_end = self.journal_id, self.ids_end
        history.position_key = self.position_key or history.position_key
        boots[self.boot] = history.position
        if len(boots) > KEPT_BOOTS:
            del boots[next(iter(boots))]


# Peers know some ids that are in no record, so a restarted dispatcher begins with the next block.
# (docs/decisions/047)
class IdsReserved(Record, frozen=True):
    """The dispatcher gives ids up to, but not, `ids_end`."""

    ids_end: int

    def fits(self, state: State) -> bool:
        """Return whether ids are added."""
        return self.ids_end > state.history.ids_end

    def apply(self, state: State) -> None:
        """Note the end."""
        state.history.ids_end = self.ids_end
