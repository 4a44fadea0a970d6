"""Checks and seeds of a dataset that is read by positions, in "deterministic_epoch"."""

import logging
import weakref

from stoker.dataset.drawn_seeds import DrawnSeed, DrawnSeeds
from stoker.dataset.positions.count import count_positions
from stoker.dataset.positions.counted import NotCounted
from stoker.dataset.positions.first_epoch import is_cache
from stoker.dataset.stateful.functions import stateful_functions
from stoker.dataset.tree.call_site import warn_at_call_site
from stoker.dataset.tree.node import INFINITE_CARDINALITY, Node, number
from stoker.dataset.tree.splits import ENDLESS
from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.api.read_options import ReadOptions
from stoker.service.rules.checks import check_counted

logger = logging.getLogger("stoker.client")

_warned: "weakref.WeakSet[Node]" = weakref.WeakSet()


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


def check_dataset(root: Node, registration: m.RegisterDataset) -> int:
    """Return the number of positions of a dataset that any worker may compute at any position.

    Warns once of each cache.

    Raises:
        UnimplementedError: if the positions are not known; names the node.
        InvalidArgumentError: if a function has a state; names it and the node.
    """
    length = check_counted(registration.positions)
    for found in stateful_functions(root):
        raise InvalidArgumentError(
            f'{found}. In "deterministic_epoch" any worker may call it for any element, and '
            "again: count with enumerate(), and draw from stoker.random.generator(); or use "
            'processing_mode="distributed_epoch"'
        )
    for node in number(root):
        if is_cache(node) and node not in _warned:
            _warned.add(node)
            warn_at_call_site(
                f'`{node.stage_kind}` ({node.site}) keeps nothing in "deterministic_epoch", whose '
                "workers compute any part of an epoch: apply it after `distribute`, or use "
                'processing_mode="distributed_epoch"'
            )
    return length


def cardinality_of(options: ReadOptions, length: int, base: int = 0) -> int:
    """Return the number of elements that a reader gets of an epoch of `length` positions.

    Args:
        options: of the reader.
        length: ENDLESS without end.
        base: as of `EpochShare`.
    """
    size = options.share(base).length(length)
    return INFINITE_CARDINALITY if size == ENDLESS else size


def initial_draws(options: ReadOptions, registered: DrawnSeeds) -> m.Draws:
    """Return the salts with which a reader begins; the seed is that of its dataset."""
    return m.Draws(0, salts=[] if _ties(options, registered) else registered.salts)


def reader_seed(options: ReadOptions, registered: DrawnSeeds) -> DrawnSeed | None:
    """Return the seed of all processes that read together; ``None``: that of the dataset.

    Args:
        options: of the reader.
        registered: the seeds that were registered; of a global seed, which all processes have.
    """
    if _ties(options, registered):
        return DrawnSeed(0)
    return None if registered.seed is None else DrawnSeed(registered.seed, from_global=True)


# Processes that draw their own seeds would read different orders, and could not agree on one.
def _ties(options: ReadOptions, registered: DrawnSeeds) -> bool:
    return options.ties_processes and registered.seed is None
