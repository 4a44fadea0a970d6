"""The mode of a job."""

import functools

from stoker.service import messages as m
from stoker.service.dispatcher.modes.cache import Cached
from stoker.service.dispatcher.modes.coordinated.rules import Coordinated
from stoker.service.dispatcher.modes.deterministic.rules import ByPosition, Deterministic
from stoker.service.dispatcher.modes.dynamic.rules import Dynamic
from stoker.service.dispatcher.modes.mode import Mode, Sharing
from stoker.service.dispatcher.modes.off import Off
from stoker.service.dispatcher.modes.static.rules import Static
from stoker.service.rules.checks import reads_by_position
from stoker.service.rules.processing_modes import STATIC_POLICIES, ShardingPolicy

_MODES: dict[ShardingPolicy, type[Mode]] = {
    ShardingPolicy.OFF: Off,
    ShardingPolicy.DYNAMIC: Dynamic,
    **dict.fromkeys(STATIC_POLICIES, Static),
    ShardingPolicy.DETERMINISTIC: Deterministic,
}
_FIRST_COME, _CACHED, _COORDINATED = Sharing(), Cached(), Coordinated()
_BY_POSITION = ByPosition()


def mode_of(parameters: m.JobParameters) -> Mode:
    """Return the rules for jobs with these parameters."""
    sharing = _FIRST_COME
    if reads_by_position(parameters.processing_mode):
        sharing = _BY_POSITION
    elif parameters.use_cross_trainer_cache:
        sharing = _CACHED
    elif parameters.num_consumers is not None:
        sharing = _COORDINATED
    return _mode(parameters.processing_mode, sharing)


# One object for each policy and sharing: a mode has no state.
@functools.cache
def _mode(policy: ShardingPolicy, sharing: Sharing) -> Mode:
    return _MODES[policy](policy, sharing)
