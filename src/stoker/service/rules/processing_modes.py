"""Processing modes: the division of a dataset among workers."""

import enum
from typing import Any

from stoker.errors import InvalidArgumentError


class ShardingPolicy(enum.IntEnum):
    """Division of the dataset among workers; the names and values of tf.data service.

    `DETERMINISTIC` is stoker's own (``"deterministic_epoch"``).
    """

    OFF = 0
    DYNAMIC = 1
    FILE = 2
    DATA = 3
    FILE_OR_DATA = 4
    HINT = 5
    DETERMINISTIC = 6


PROCESSING_MODES = {
    "parallel_epochs": ShardingPolicy.OFF,
    "distributed_epoch": ShardingPolicy.DYNAMIC,
    "deterministic_epoch": ShardingPolicy.DETERMINISTIC,
}


def mode_name(policy: ShardingPolicy) -> str:
    """Return the string of a policy that has one, and the name of another."""
    names = {known: name for name, known in PROCESSING_MODES.items()}
    return names.get(policy, policy.name)


STATIC_POLICIES = frozenset(
    {ShardingPolicy.FILE, ShardingPolicy.DATA, ShardingPolicy.FILE_OR_DATA, ShardingPolicy.HINT}
)
"""Policies under which each worker of `DispatcherConfig.worker_addresses` reads its own shard."""


def parse_processing_mode(mode: Any) -> ShardingPolicy:
    """Return the policy that `mode` names.

    Args:
        mode: a `ShardingPolicy`, an equal member of another IntEnum, such as that of
            `stoker.compat.tf` or of TensorFlow, or a name.

    Raises:
        InvalidArgumentError: if `mode` is none of them.
    """
    # By name and value, so that members of TensorFlow's enum and of the compat one are accepted.
    if isinstance(mode, enum.IntEnum) and ShardingPolicy.__members__.get(mode.name) == mode:
        return ShardingPolicy(mode)
    if isinstance(mode, str) and mode in PROCESSING_MODES:
        return PROCESSING_MODES[mode]
    raise InvalidArgumentError(
        "tf.data service processing mode should be a "
        '`tf.data.experimental.service.ShardingPolicy`, `"parallel_epochs"`, or '
        f'`"distributed_epoch"`. Got {mode!r}.'
    )
