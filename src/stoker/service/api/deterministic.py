"""Checks and seeds of a dataset that is read by positions, in "deterministic_epoch"."""

import weakref

from stoker.dataset.positions.first_epoch import is_cache
from stoker.dataset.stateful.functions import stateful_functions
from stoker.dataset.tree.call_site import warn_at_call_site
from stoker.dataset.tree.node import Node, number
from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.rules.checks import check_counted

_warned: "weakref.WeakSet[Node]" = weakref.WeakSet()


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
