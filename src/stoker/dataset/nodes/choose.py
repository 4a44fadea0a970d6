"""sample_from_datasets and choose_from_datasets: the next element of a drawn or chosen input."""

from collections import deque
from typing import Any, ClassVar

import numpy as np

from stoker.dataset.drawn_seeds import NEW_SALT, Salt
from stoker.dataset.random import rng
from stoker.dataset.streams.choices import (
    Choices,
    Draws,
    GivenChoices,
    VaryingChoices,
    WeightedChoices,
)
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Context,
    Node,
    SeveralInputs,
)

# Number of draws per call if the number needed is unknown.
_DRAWS = 1024

# Draws that `advance` counts in one step: 8 MB.
_MAX_COUNTED = 1 << 20


class Sample(SeveralInputs, frozen=True, eq=False, kw_only=True):
    """The next element of an input drawn at random, with fixed weights.

    Attributes:
        weights: a weight above 0 for each input.
        stop_on_empty_dataset: end when an input that has ended is drawn; otherwise draw again.
        seed: the user's; None for that of the context.
        rerandomize_each_iteration: False to draw the same in every epoch.
    """

    kind: ClassVar[str] = "sample_from_datasets"
    weights: tuple[float, ...]
    stop_on_empty_dataset: bool = False
    seed: int | None = None
    salt: Salt = NEW_SALT
    rerandomize_each_iteration: bool = False

    def cardinality(self) -> int:
        if not self.stop_on_empty_dataset:
            return super().cardinality()
        counts = {part.cardinality() for part in self.parts}
        if len(self.parts) == 1 or counts in ({0}, {INFINITE_CARDINALITY}):
            return counts.pop()
        return UNKNOWN_CARDINALITY

    def open(self, context: Context) -> Stream:
        # A single input needs no draws; datasets of weight 0 were left out.
        if len(self.parts) == 1:
            return context.open(self.parts[0])
        generator = rng(context, self, self.seed, per_epoch=self.rerandomize_each_iteration)
        return _ChosenStream(self, context, WeightedChoices(generator, self.weights))


class SampleByWeights(SeveralInputs, frozen=True, eq=False, kw_only=True):
    """A `Sample` with the weights of each draw from a dataset, whose end is the end.

    Attributes:
        weights: a dataset whose elements are a weight for each input.
        stop_on_empty_dataset: as of `Sample`.
        seed: as of `Sample`.
        rerandomize_each_iteration: as of `Sample`.
    """

    kind: ClassVar[str] = "sample_by_weights"
    weights: Node
    stop_on_empty_dataset: bool = False
    seed: int | None = None
    salt: Salt = NEW_SALT
    rerandomize_each_iteration: bool = False

    def cardinality(self) -> int:
        return _directed_cardinality(self.parts, self.weights)

    def open(self, context: Context) -> Stream:
        # Each task draws for the elements of its own splits, and reads all weights for these draws.
        weights = context.whole().open(self.weights)
        generator = rng(context, self, self.seed, per_epoch=self.rerandomize_each_iteration)
        choices = VaryingChoices(generator, weights, len(self.parts))
        return _ChosenStream(self, context, choices)


class Choose(SeveralInputs, frozen=True, eq=False, kw_only=True):
    """The next element of the input that a dataset of indices selects, up to the end of indices.

    Attributes:
        choices: the dataset of indices; every task of a service reads all indices, as in tf.data.
        stop_on_empty_dataset: as of `Sample`.
    """

    kind: ClassVar[str] = "choose_from_datasets"
    choices: Node
    stop_on_empty_dataset: bool = True

    def cardinality(self) -> int:
        return _directed_cardinality(self.parts, self.choices)

    def open(self, context: Context) -> Stream:
        choices = GivenChoices(context.whole().open(self.choices), len(self.parts))
        return _ChosenStream(self, context, choices)


def _directed_cardinality(parts: tuple[Node, ...], director: Node) -> int:
    """Return the cardinality, with an element per element of `director`."""
    directions = director.cardinality()
    counts = {part.cardinality() for part in parts}
    if directions == 0 or counts == {0}:
        return 0
    return directions if counts == {INFINITE_CARDINALITY} else UNKNOWN_CARDINALITY


class _ChosenStream(Stream):
    """Yields elements of the inputs in the order of the choices.

    Args:
        node: the node of the stream.
        context: the context of the node.
        choices: the indices of the inputs to read.
    """

    def __init__(
        self, node: Sample | SampleByWeights | Choose, context: Context, choices: Choices
    ) -> None:
        self._streams = streams = [context.open(part) for part in node.parts]
        self._choices = choices
        self._stop = node.stop_on_empty_dataset
        self._kept: list[deque[Any]] = [deque() for _ in streams]
        # The last entry is for failures, which never end.
        self._has_more = np.ones(len(streams) + 1, np.bool_)
        self._draws: list[int] = []
        self._at = 0
        self._ended = False

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        chunk: list[Any] = []
        while len(chunk) < max_elements and not self._ended:
            if self._at == len(self._draws):
                # Drawing may block, and a chunk that has elements must not wait.
                if chunk and self._choices.waits:
                    break
                self._refill(max_elements - len(chunk), lazy)
                continue
            drawn = self._draws[self._at]
            if drawn == len(self._streams):
                if chunk:
                    break
                self._at += 1
                raise self._choices.failures.popleft()
            kept = self._kept[drawn]
            if not kept:
                if chunk:
                    break
                if not self._read(drawn, max_elements, max_bytes, lazy):
                    continue
            self._at += 1
            chunk.append(kept.popleft())
        return chunk

    def _refill(self, most: int, lazy: bool) -> None:
        """Draw the next inputs; end if no input is left."""
        most = min(most, _DRAWS) if self._choices.waits else _DRAWS
        self._draws = self._draw(most, lazy).tolist()
        self._at = 0

    def _draw(self, most: int, lazy: bool = False) -> Draws:
        """Return the next choices of inputs that have not ended; none at the end."""
        left = np.flatnonzero(self._has_more[:-1])
        if len(left) == 1 and not self._choices.waits:
            return np.full(most, left[0], np.int64)  # however small its weight
        if len(left):
            draws = self._choices.draw(most, lazy)
            if len(draws):
                return draws[self._has_more[draws]]
        self._ended = True
        return np.empty(0, np.int64)

    def _read(self, drawn: int, most: int, max_bytes: int, lazy: bool) -> bool:
        """Read the elements of an input for the next `most` choices; return False at its end."""
        # Elements beyond the known draws are not read: the choices may end before.
        wanted = self._draws[self._at : self._at + most].count(drawn)
        try:
            # Elements stay buffered until drawn, so the limit is shared by all inputs.
            share = max(1, max_bytes // len(self._streams))
            read = self._streams[drawn].next_chunk(wanted, share, lazy)
        except Exception:
            self._at += 1
            raise
        self._kept[drawn].extend(read)
        if not read:
            self._end_input(drawn)
        return bool(read)

    def _end_input(self, ended: int) -> None:
        if self._stop:
            self._ended = True
            return
        self._has_more[ended] = False
        self._draws = [drawn for drawn in self._draws[self._at :] if drawn != ended]
        self._at = 0

    def advance(self, n: int) -> int:
        left = n
        while left and not self._ended:
            if self._at < len(self._draws):
                draws = np.array(self._draws[self._at : self._at + left], np.int64)
                self._at += len(draws)
            else:
                draws = self._draw(min(left, _MAX_COUNTED))
            left -= self._skip(draws)
        return n - left

    def _skip(self, draws: Draws) -> int:
        """Skip the drawn elements; return the number of positions, fewer if an input ended."""
        wanted = np.bincount(draws, minlength=len(self._streams) + 1).tolist()
        for _ in range(wanted[-1]):
            self._choices.failures.popleft()
        skipped = len(draws)
        end = len(draws)
        for i, count in enumerate(wanted[:-1]):
            found = self._skip_input(i, count)
            if found == count:
                continue
            skipped -= count - found
            end = min(end, int(np.flatnonzero(draws == i)[found]))
            self._end_input(i)
        return end if self._stop else skipped

    def _skip_input(self, i: int, count: int) -> int:
        kept = self._kept[i]
        held = min(count, len(kept))
        for _ in range(held):
            kept.popleft()
        return held + self._streams[i].advance(count - held) if count > held else held

    def close(self) -> None:
        self._ended = True
        self._choices.close()
        for stream in self._streams:
            stream.close()
