"""Actions that the dispatcher's logic returns to its shell."""

from dataclasses import dataclass
from typing import TypeAlias

from stoker.service import messages as m


@dataclass(frozen=True)
class Send:
    """Send `message` on the session of `peer`."""

    peer: int
    message: m.FromDispatcher


@dataclass(frozen=True)
class EndSession:
    """End the session of `peer` after the messages sent to it."""

    peer: int


Action: TypeAlias = Send | EndSession
