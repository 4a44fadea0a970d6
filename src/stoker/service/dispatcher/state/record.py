"""The base of records: the changes of the dispatcher's state, stored in the journal and replayed.

A record is named after a part of the state and its change, as in `SplitsBegun`; a message, after
what its sender did or asks for.
"""

from typing import ClassVar

import msgspec

from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.state import State


# The journal keeps records for longer than one version of stoker lives. A record changes only by
# new fields at its end that have a default; any other change needs a new record type.
class Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A change of the state, with its check and its lines in the log.

    Attributes:
        adds: the field with the id of the entity that the record adds; "" if it adds none.
    """

    adds: ClassVar[str] = ""

    def fits(self, state: State) -> bool:
        """Return whether the record fits the state. All ids that the record names are known."""
        return True

    def apply(self, state: State) -> None:
        """Change the state. Never raises for a record that fits."""
        raise NotImplementedError

    def log_before(self, state: State, log: EventLog) -> None:
        """Add the lines about an entity that the record removes."""

    def log_after(self, state: State, log: EventLog) -> None:
        """Add the lines about an entity that the record has added or changed."""
