"""A model of a task's pipeline: it reads splits when given them, and yields named elements."""

import random
from ast import literal_eval
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.chunk import Chunk

Element: TypeAlias = tuple[int, int, int]
"""An element: its source, the epoch of the source, and its number."""


ELEMENT_BYTES = 10
ENDLESS = 10**9
"""Epochs of a dataset that does not end."""

CHUNK_ELEMENTS = 7
CHUNK_BYTES = ELEMENT_BYTES * CHUNK_ELEMENTS
"""Size of an element, and of the largest chunk."""


@dataclass(frozen=True)
class SourcePlan:
    """A source of `count` elements; with `per_file` it is listed as files of as many elements."""

    number: int
    count: int
    per_file: int = 0

    @property
    def files(self) -> list[str]:
        """The splits that a worker lists."""
        return [f"file-{k}" for k in range(-(-self.count // self.per_file))]

    def read(self, split: Any) -> range:
        """Return the elements of a split."""
        if self.per_file:
            first = int(split.removeprefix("file-")) * self.per_file
            return range(first, min(first + self.per_file, self.count))
        return range(*split)


@dataclass(frozen=True)
class Plan:
    """The simulated dataset: its sources in order, repeated `epochs` times."""

    sources: tuple[SourcePlan, ...]
    epochs: int
    errors: frozenset[Element] = frozenset()

    def elements(self) -> list[Element]:
        """Return all elements in order."""
        return [
            (source.number, source_epoch, k)
            for source_epoch in range(self.epochs)
            for source in self.sources
            for k in range(source.count)
        ]


def elements_of(chunk: Chunk) -> list[Any]:
    """Return the elements of a chunk, or that in whose position it has an error."""
    return chunk.elements if chunk.error is None else [literal_eval(chunk.error.message)]


class Pipeline:
    """Run one task on the simulated clock, one chunk at a time.

    Args:
        start: the task.
        plan: what it reads.
        rng: generates chunk sizes and times.
        seconds: time to compute a typical element.
        after: schedules an event.
        need_split: asks for a split; `give_split` answers.
        produced: accepts a chunk and returns whether to continue.
        exhausted: called at the end.
    """

    def __init__(
        self,
        start: m.TaskStart,
        plan: Plan,
        rng: random.Random,
        seconds: float,
        after: Callable[[float, Callable[[], None]], None],
        need_split: Callable[[int, int, int], None],
        produced: Callable[[int, Chunk], bool],
        exhausted: Callable[[int], None],
    ) -> None:
        self.task_id = start.task_id
        self.closed = self.draining = False
        self._plan = plan
        self._rng = rng
        self._seconds = seconds
        self._after = after
        self._need_split, self._produced, self._exhausted = need_split, produced, exhausted
        self._assigned_splits = isinstance(start.mode, m.SplitTask)
        self._asking = self._full = False
        self._given: list[Any] | None = None
        self._work = self._run()
        self._after(seconds, self._step)

    def give_split(self, split: list[Any]) -> None:
        """Answer a request with ``[value]``, or ``[]`` at the end."""
        assert self._asking, "a split that nobody asked for"
        assert self._given is None, "two answers to one question"
        self._given = split
        self._after(0, self._step)

    def resume(self) -> None:
        """Continue: there is room again."""
        if self._full:
            self._full = False
            self._after(0, self._step)

    def close(self) -> None:
        """Stop."""
        self.closed = True

    def _step(self) -> None:
        """Continue until it has to wait for time, a split or room."""
        if self.closed:
            return
        try:
            wait = next(self._work)
        except StopIteration:
            self._exhausted(self.task_id)
            return
        if wait is not None:
            self._after(wait, self._step)

    def _run(self) -> Iterator[float | None]:
        """Yield seconds to wait, or ``None`` to wait for an event."""
        chunk: list[Element] = []
        size = self._rng.randint(1, CHUNK_ELEMENTS)
        for source_epoch in range(self._plan.epochs):
            if self.draining and self._plan.epochs == ENDLESS:
                break
            for source in self._plan.sources:
                for split in self._splits(source, source_epoch):
                    if not isinstance(split, range):
                        yield split
                        continue
                    for k in split:
                        element = (source.number, source_epoch, k)
                        failed = element in self._plan.errors
                        if not failed:
                            chunk.append(element)
                        if chunk and (failed or len(chunk) == size):
                            yield from self._deliver(Chunk(chunk, ELEMENT_BYTES * len(chunk)))
                            chunk, size = [], self._rng.randint(1, CHUNK_ELEMENTS)
                        if failed:
                            error = ErrorRecord("UserFunctionError", repr(element))
                            yield from self._deliver(Chunk([], 5, error))
        if chunk:
            yield from self._deliver(Chunk(chunk, ELEMENT_BYTES * len(chunk)))

    def _splits(self, source: SourcePlan, source_epoch: int) -> Iterator[range | None]:
        """Yield the ranges to read, or ``None`` to wait for one."""
        if not self._assigned_splits:
            yield range(source.count)
            return
        while True:
            self._asking = True
            self._need_split(self.task_id, source.number, source_epoch)
            yield None
            assert self._given is not None
            given, self._given, self._asking = self._given, None, False
            if not given:
                return
            yield source.read(given[0])

    def _deliver(self, chunk: Chunk) -> Iterator[float | None]:
        yield self._seconds * chunk.positions * self._rng.uniform(0.5, 1.5)
        if not self._produced(self.task_id, chunk):
            self._full = True
            yield None
