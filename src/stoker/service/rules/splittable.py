"""Checks of a dataset's sources against a processing mode, for trainer and dispatcher."""

from collections.abc import Iterable

from stoker.dataset.tree.splits import Source, Unsplittable
from stoker.errors import UnimplementedError
from stoker.service.rules.processing_modes import ShardingPolicy


def assigns_splits(policy: ShardingPolicy) -> bool:
    """Return whether workers read the splits that the dispatcher assigns to them."""
    return policy is ShardingPolicy.DYNAMIC


def check_splittable(policy: ShardingPolicy, sources: Iterable[Source]) -> None:
    """Check that every source can be split, if `policy` assigns splits.

    Raises:
        UnimplementedError: if a source cannot be split; names it.
    """
    for source in sources if assigns_splits(policy) else ():
        if isinstance(source.splits, Unsplittable):
            raise UnimplementedError(
                f"`{source.kind}` ({source.site}) cannot be split: {source.splits.why}. "
                'Use a source that can be split, or processing_mode="parallel_epochs", in which '
                "every worker yields the whole dataset: with N workers, each element N times"
            )
