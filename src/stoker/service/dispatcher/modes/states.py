"""The states of all modes, as records and snapshots have them."""

from typing import TypeAlias

from stoker.service.dispatcher.modes.deterministic.state import EpochState
from stoker.service.dispatcher.modes.dynamic.state import DynamicState
from stoker.service.dispatcher.modes.state import ModeState
from stoker.service.dispatcher.modes.static.state import ShardState

AnyModeState: TypeAlias = ModeState | ShardState | DynamicState | EpochState


def splits_of(state: AnyModeState) -> DynamicState:
    """Return the begun splits of an iteration whose sources are assigned to tasks."""
    assert isinstance(state, DynamicState)
    return state
