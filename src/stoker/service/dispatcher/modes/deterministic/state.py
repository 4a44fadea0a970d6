"""The recorded state of DETERMINISTIC: what the tasks of an epoch need."""

from stoker.service.dispatcher.modes.state import ModeState
from stoker.service.messages import Draws


# Nothing of what clients have read is recorded: a client alone knows its position, and any task can
# compute any position, so that nothing is lost with a dispatcher or a worker. (docs/decisions/101)
class EpochState(ModeState, tag=True, kw_only=True):
    """A deterministic epoch.

    Attributes:
        length: the number of its positions.
        draws: its random draws, which its clients agree on.
    """

    length: int
    draws: Draws
