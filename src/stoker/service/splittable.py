"""Whether a dataset's sources can be handed out in splits; trainer and dispatcher both ask."""

from collections.abc import Iterable

from stoker.dataset.tree.splits import Source, Unsplittable
from stoker.errors import UnimplementedError


def check_splittable(sources: Iterable[Source]) -> None:
    """Checks that every source can be split, as DYNAMIC sharding needs.

    Raises:
        UnimplementedError: one cannot; names it.
    """
    for source in sources:
        if isinstance(source.splits, Unsplittable):
            raise UnimplementedError(
                f"`{source.kind}` ({source.site}) cannot be split: {source.splits.why}. "
                'Use processing_mode="parallel_epochs", or a source that can be split'
            )
