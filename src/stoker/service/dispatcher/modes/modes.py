"""The mode of a job."""

import functools

from stoker.service import messages as m
from stoker.service.dispatcher.modes.cache import Cached
from stoker.service.dispatcher.modes.coordinated.rules import Coordinated
from stoker.service.dispatcher.modes.dynamic.rules import Dynamic
from stoker.service.dispatcher.modes.mode import Mode, Sharing
from stoker.service.dispatcher.modes.off import Off
from stoker.service.dispatcher.modes.static.rules import Static
from stoker.service.rules.processing_modes import (
    STATIC_POLICIES,
    ShardingPolicy,
    parse_processing_mode,
)

_MODES: dict[ShardingPolicy, type[Mode]] = {
    ShardingPolicy.OFF: Off,
    ShardingPolicy.DYNAMIC: Dynamic,
    **dict.fromkeys(STATIC_POLICIES, Static),
}
_FIRST_COME, _CACHED, _COORDINATED = Sharing(), Cached(), Coordinated()


def mode_of(parameters: m.JobParameters) -> Mode:
    """Return the rules for jobs with these parameters.

    Raises:
        UnimplementedError: if this version does not have the processing mode.
    """
    sharing = _FIRST_COME
    if parameters.use_cross_trainer_cache:
        sharing = _CACHED
    elif parameters.num_consumers is not None:
        sharing = _COORDINATED
    return _mode(parameters.processing_mode, sharing)


# One object for each policy and sharing: a mode has no state.
@functools.cache
def _mode(policy: ShardingPolicy, sharing: Sharing) -> Mode:
    return _MODES[parse_processing_mode(policy)](policy, sharing)
