"""Choices between several inputs: drawn by weights, or given by a dataset."""

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.dataset import arguments
from stoker.dataset.streams.deadline import ChunkPace
from stoker.dataset.streams.stream import Stream
from stoker.errors import InvalidArgumentError

Draws = npt.NDArray[np.int64]


class Choices(ABC):
    """A sequence of indices of inputs.

    Attributes:
        failures: the errors of the positions with index `count` (of inputs), in their order.
        waits: drawing may block, and must be done only with an empty chunk.
    """

    waits: ClassVar[bool]

    def __init__(self) -> None:
        self.failures: deque[Exception] = deque()

    @abstractmethod
    def draw(self, most: int, lazy: bool = False) -> Draws:
        """Return the next indices: at least 1 and at most `most`, none at the end.

        `lazy` is that of `Stream.next_chunk`.
        """

    def close(self) -> None:  # noqa: B027 - weights are no dataset
        """Close the dataset that is read."""


class WeightedChoices(Choices):
    """Choices drawn with fixed weights.

    Args:
        generator: generates the draws.
        weights: a weight per input.
    """

    waits = False

    def __init__(self, generator: "np.random.Generator", weights: tuple[float, ...]) -> None:
        super().__init__()
        self._generator = generator
        self._bounds = _bounds_of(np.asarray(weights, np.float64))

    def draw(self, most: int, lazy: bool = False) -> Draws:
        return np.searchsorted(self._bounds, self._generator.random(most), side="right")


def _bounds_of(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the upper bound in ``[0, 1)`` of the draws of each input but the last."""
    # Inputs of weight 0 at the end must not be drawn because of rounding.
    last = np.flatnonzero(weights)[-1]
    bounds: npt.NDArray[np.float64] = np.cumsum(weights / weights.max())
    bounds = bounds / bounds[-1]
    bounds[last:] = 1.0
    return bounds


class _DirectedChoices(Choices):
    """Choices derived from the elements of a dataset; its errors occupy their positions.

    Args:
        stream: the stream of the dataset.
        count: number of inputs.
    """

    waits = True

    def __init__(self, stream: Stream, count: int) -> None:
        super().__init__()
        self._stream = stream
        self._count = count
        self._pace = ChunkPace()

    def draw(self, most: int, lazy: bool = False) -> Draws:
        draws: list[int] = []
        self._pace.begin()
        while len(draws) < most:  # a repeat returns an epoch per call
            try:
                chunk = self._stream.next_chunk(most - len(draws), 1 << 20, lazy)
            except Exception as error:  # noqa: BLE001 - the error occupies its position
                self._skip_failed()
                draws.append(self._failed(error))
                break
            draws.extend(map(self._index, chunk))
            if not chunk or lazy or not self._pace.allows_read():
                break
        return np.array(draws, np.int64)

    def _index(self, element: Any) -> int:
        try:
            return self._choose(element)
        except InvalidArgumentError as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> int:
        self.failures.append(error)
        return self._count

    @abstractmethod
    def _choose(self, element: Any) -> int:
        """Return the index for an element."""

    def _skip_failed(self) -> None:
        """Handle a failed position of the dataset."""

    def close(self) -> None:
        self._stream.close()


class GivenChoices(_DirectedChoices):
    """Choices that are the elements of a dataset."""

    def _choose(self, element: Any) -> int:
        try:
            index = int(element.__index__())
        except (AttributeError, TypeError):
            index = -1
        if not 0 <= index < self._count:
            raise InvalidArgumentError(
                f"an element of `choice_dataset` must be an index of one of the {self._count} "
                f"datasets, an int from 0 to {self._count - 1}; got {element!r}"
            )
        return index


class VaryingChoices(_DirectedChoices):
    """Choices drawn with the weights that are the elements of a dataset.

    Args:
        generator: generates the draws, a draw per element.
        weights: the stream of the dataset.
        count: number of inputs.
    """

    def __init__(self, generator: "np.random.Generator", weights: Stream, count: int) -> None:
        super().__init__(weights, count)
        self._generator = generator

    def _choose(self, element: Any) -> int:
        drawn = self._generator.random()
        weights = arguments.weights(element, self._count)
        return int(np.searchsorted(_bounds_of(weights), drawn, side="right"))

    def _skip_failed(self) -> None:
        self._generator.random()  # each position has its draw, also a failed position
