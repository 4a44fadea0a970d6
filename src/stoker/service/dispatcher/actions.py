"""What the dispatcher's logic tells its shell to do."""

from dataclasses import dataclass
from typing import TypeAlias

from stoker.service import messages as m


@dataclass(frozen=True)
class Send:
    """Send `message` on the session of `peer`."""

    peer: int
    message: m.FromDispatcher


@dataclass(frozen=True)
class Hangup:
    """End the session of `peer`, after what was sent to it."""

    peer: int


Action: TypeAlias = Send | Hangup
