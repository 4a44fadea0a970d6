"""Tables: elements known by row numbers, of which a batch is gathered in one step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stoker.dataset.streams.rows.row_numbers import Column

Allocate: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]


class Table(ABC):
    """Elements in memory, or computed from their numbers, as `Node.table` describes.

    Attributes:
        width: number of columns in its `RowNumbers`; a zip has the columns of all its inputs.
        element_bytes: approximate size of an element.
    """

    width: int = 1
    element_bytes: int

    @abstractmethod
    def batch(self, columns: Sequence[Column], allocate: Allocate) -> Any:
        """Return the batch of some rows in new memory, equal to the batch of their elements.

        Args:
            columns: the numbers of the rows, at least one row.
            allocate: allocates the arrays.
        """

    @abstractmethod
    def elements(self, columns: Sequence[Column]) -> list[Any]:
        """Return the elements of some rows; arrays are read-only views where possible."""
