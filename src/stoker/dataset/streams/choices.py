"""Which of several inputs is next: drawn by weights, or named by a dataset."""

import time
from collections import deque
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stoker.dataset import arguments
from stoker.dataset.streams.stream import Stream
from stoker.errors import InvalidArgumentError

# Choices are handed on when reading them has taken this long.
_CHUNK_SECONDS = 0.5e-3

# A dataset that answers this fast is read on for the same draws.
_PROMPT_SECONDS = 20e-6

Draws = npt.NDArray[np.int64]


class Choices(Protocol):
    """Which input is next, again and again.

    Attributes:
        failures: the errors of the positions drawn as `count` (of inputs), in their order.
        waits: drawing may take long, so it is done only where nothing is held.
    """

    failures: "deque[Exception]"
    waits: bool

    def draw(self, most: int, lazy: bool = False) -> Draws:
        """Return the next indices: at least one and at most `most`, none at the end.

        `lazy` is that of `Stream.next_chunk`.
        """
        ...

    def close(self) -> None:
        """Closes what is read."""
        ...


class WeightedChoices:
    """Choices drawn with fixed weights, however many at once.

    Args:
        generator: makes the draws.
        weights: one for each input.
    """

    waits = False

    def __init__(self, generator: "np.random.Generator", weights: tuple[float, ...]) -> None:
        self.failures: deque[Exception] = deque()
        self._generator = generator
        self._bounds = _bounds_of(np.asarray(weights, np.float64))

    def draw(self, most: int, lazy: bool = False) -> Draws:
        """See `Choices`."""
        return np.searchsorted(self._bounds, self._generator.random(most), side="right")

    def close(self) -> None:
        """See `Choices`."""


def _bounds_of(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Where, in ``[0, 1)``, the draws of each input but the last end."""
    # Inputs of weight 0 behind the last of the others must not get what rounding leaves.
    last = np.flatnonzero(weights)[-1]
    bounds: npt.NDArray[np.float64] = np.cumsum(weights / weights.max())
    bounds = bounds / bounds[-1]
    bounds[last:] = 1.0
    return bounds


class _DirectedChoices:
    """Choices that come of a dataset's elements; an error of its takes a choice's position.

    Args:
        stream: the dataset's.
        count: of the inputs.
    """

    waits = True

    def __init__(self, stream: Stream, count: int) -> None:
        self.failures: deque[Exception] = deque()
        self._stream = stream
        self._count = count
        self._prompt = False

    def draw(self, most: int, lazy: bool = False) -> Draws:
        """See `Choices`."""
        draws: list[int] = []
        begun = time.perf_counter()
        # A repeat hands out a pass at a time; how long the next takes is foreseen from this one.
        while len(draws) < most and (not draws or self._prompt):
            before = time.perf_counter()
            try:
                chunk = self._stream.next_chunk(most - len(draws), 1 << 20, lazy)
            except Exception as error:  # noqa: BLE001 - it occupies its position
                self._pass_failed()
                draws.append(self._failed(error))
                break
            draws.extend(map(self._index, chunk))
            now = time.perf_counter()
            self._prompt = now - before < _PROMPT_SECONDS
            if not chunk or lazy or now - begun > _CHUNK_SECONDS:
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

    def _choose(self, element: Any) -> int:
        """The index that an element stands for."""
        raise NotImplementedError

    def _pass_failed(self) -> None:
        """A position of the dataset has failed."""

    def close(self) -> None:
        """See `Choices`."""
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
        generator: makes the draws, one for each element.
        weights: the dataset's stream.
        count: of the inputs.
    """

    def __init__(self, generator: "np.random.Generator", weights: Stream, count: int) -> None:
        super().__init__(weights, count)
        self._generator = generator

    def _choose(self, element: Any) -> int:
        drawn = self._generator.random()
        weights = arguments.weights(element, self._count)
        return int(np.searchsorted(_bounds_of(weights), drawn, side="right"))

    def _pass_failed(self) -> None:
        self._generator.random()  # each position has its draw, whatever it holds
