"""The processing mode of `Dataset.distribute` without one."""

import logging

from stoker.dataset.positions.count import count_positions
from stoker.dataset.positions.counted import NotCounted
from stoker.dataset.positions.first_epoch import is_cache
from stoker.dataset.stateful.functions import stateful_functions
from stoker.dataset.tree.node import Node, number

logger = logging.getLogger("stoker.client")


# The call of `distribute` then changes nothing that a user can see but the speed.
def default_mode(root: Node, job_name: str | None) -> str:
    """Return the processing mode of `Dataset.distribute` without one; log why, if not this mode.

    Args:
        root: the tree of the dataset.
        job_name: clients with a name share the elements of a job, first come, first served.
    """
    if job_name is not None:
        return "distributed_epoch"
    reason = _reason_against(root)
    if not reason:
        return "deterministic_epoch"
    logger.info("a dataset is read in distributed_epoch, in no fixed order: %s", reason)
    return "distributed_epoch"


def _reason_against(root: Node) -> str:
    """Return why a dataset is not read by positions unless the user names the mode; or ""."""
    positions = count_positions(root)
    if isinstance(positions, NotCounted):
        return f"`{positions.kind}` ({positions.site}): {positions.why}"
    for node in number(root):
        if is_cache(node):
            return f"`{node.stage_kind}` ({node.site}) would keep nothing"
    return next(map(str, stateful_functions(root)), "")
