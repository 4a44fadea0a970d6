"""The states of all modes, as records and snapshots have them."""

from typing import TypeAlias

from stoker.service.dispatcher.modes.state import ModeState
from stoker.service.dispatcher.modes.static.state import ShardState

AnyModeState: TypeAlias = ModeState | ShardState
