"""Checks of reads through a cross-trainer cache, for trainer and dispatcher."""

from stoker.errors import InvalidArgumentError


def check_cacheable(size: int) -> None:
    """Check the cardinality of a dataset that is read through a cross-trainer cache.

    Raises:
        InvalidArgumentError: if the dataset is finite.
    """
    if size >= 0:
        raise InvalidArgumentError(
            "Cross-trainer caching requires the input dataset to be infinite. Got input with "
            f"cardinality {size}. Add `repeat()` before `distribute`"
        )


def check_repetition(epoch: tuple[int, ...]) -> None:
    """Check the epoch of a reader with a cross-trainer cache.

    Raises:
        InvalidArgumentError: if it is not the first.
    """
    if any(epoch):
        raise InvalidArgumentError(
            "Cross-trainer caching requires infinite datasets and disallows multiple repetitions "
            f"of the same dataset. Got repetition {max(epoch)}: read on with one iterator. To read "
            "from the cache again, make a new dataset by `distribute`"
        )
