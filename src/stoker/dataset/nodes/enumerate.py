"""enumerate: pairs elements with their positions."""

from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any, ClassVar, cast

import numpy as np

from stoker.dataset.collation.tables import NumberTable, ZippedTable
from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.positions.position_log import PlaceOf, positions_of
from stoker.dataset.streams.rows.row_numbers import RowNumbers, concatenated
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.dataset.tree.table import Table
from stoker.elements.spec import Spec, TensorSpec


class Enumerate(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields pairs of a position, from `start`, and its element; errors have positions, too."""

    kind: ClassVar[str] = "enumerate"
    forwards_elements: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    start: int = 0

    def element_spec(self) -> Spec:
        return (TensorSpec((), np.int64), self.input.element_spec())

    def table(self) -> Table | None:
        table = self.input.table()
        return None if table is None else ZippedTable([NumberTable(0, 1), table], (0, 1))

    def input_positions(self) -> InputPositions:
        return InputPositions()

    def open(self, context: Context) -> Stream:
        place_of = None
        if context.positions is not None:
            place_of = partial(context.positions.place, context.numbers[self])
        return _EnumerateStream(context.open(self.input), self.start, place_of)


class _EnumerateStream(OneInputStream):
    """Numbers the elements of its input.

    Args:
        stream: the input.
        start: number of the first element of the whole epoch.
        place_of: returns the places of elements in the whole epoch; ``None``: in the stream.
    """

    def __init__(self, stream: Stream, start: int, place_of: PlaceOf | None) -> None:
        super().__init__(stream)
        self._start = start
        self._position = 0
        self._place_of = place_of

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        position = self._position
        self._position += 1  # an error takes a position too
        chunk = self._input.next_chunk(max_elements, max_bytes, lazy)
        self._position = position + len(chunk)
        if isinstance(chunk, RowNumbers):  # with `Context.as_rows`
            numbers = concatenated([RowNumbers((each,)) for each in self._numbers(position)])
            return cast("list[Any]", RowNumbers((*numbers.columns, *chunk.columns)))
        if self._place_of is None:
            return list(enumerate(chunk, position + self._start))
        return list(zip(chain.from_iterable(self._numbers(position)), chunk, strict=True))

    def _numbers(self, first: int) -> list[range]:
        """Return the numbers of the elements from position `first` of the stream on."""
        ranges: Iterable[range] = (range(first, self._position),)
        if self._place_of is not None:
            ranges = positions_of(self._place_of, first, self._position)
        start = self._start
        return [range(each.start + start, each.stop + start, each.step) for each in ranges]

    def advance(self, n: int) -> int:
        passed = self._input.advance(n)
        self._position += passed
        return passed
