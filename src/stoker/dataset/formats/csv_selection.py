"""The columns of CSV files that are read."""

from collections.abc import Sequence
from itertools import count, islice, pairwise
from typing import NamedTuple, Self

from stoker.dataset import arguments
from stoker.errors import InvalidArgumentError


class ColumnsRead(NamedTuple):
    """The columns that `select_cols` and `exclude_cols` leave.

    Attributes:
        positions: their numbers in a row; ``None``: all columns.
        max_fields: the most fields of a row; ``None``: as many as `positions`, or any number if
            columns were selected.
    """

    positions: tuple[int, ...] | None
    max_fields: int | None

    @classmethod
    def of(
        cls, columns: int, select_cols: Sequence[int] | None, exclude_cols: Sequence[int] | None
    ) -> Self:
        """Return the columns to read.

        Args:
            columns: number of entries of `record_defaults`.
            select_cols: numbers of the columns to read, or ``None``.
            exclude_cols: numbers of the columns not to read, or ``None``.

        Raises:
            InvalidArgumentError: if both are given, an argument is not ascending ints of 0 or more,
                or
                `select_cols` has not an entry for each column.
        """
        if exclude_cols is None:
            return cls(None if select_cols is None else _selected(select_cols, columns), None)
        if select_cols is not None:
            raise InvalidArgumentError(
                f"Either select_cols or exclude_cols should be empty; got {select_cols!r} and "
                f"{exclude_cols!r}"
            )
        excluded = _ascending("exclude_cols", exclude_cols)
        left = (column for column in count() if column not in excluded)
        # An excluded column after the last column read may be absent, as in tf.data.
        *positions, next_column = islice(left, columns + 1)
        return cls(tuple(positions), next_column)


def _selected(value: Sequence[int], columns: int) -> tuple[int, ...]:
    selected = _ascending("select_cols", value)
    if len(selected) != columns:
        raise InvalidArgumentError(
            f"`select_cols` must have an entry for each of the {columns} in `record_defaults`; "
            f"got {len(selected)}"
        )
    return selected


def _ascending(name: str, value: Sequence[int]) -> tuple[int, ...]:
    numbers = tuple(arguments.integers(name, value, minimum=0, what="a list of ints, 0 or more"))
    if any(a >= b for a, b in pairwise(numbers)):
        raise InvalidArgumentError(f"`{name}` must ascend; got {list(numbers)}")
    return numbers
