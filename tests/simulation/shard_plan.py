"""Static sharding in the simulation: which runs have it, and what their tasks read."""

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

from stoker.dataset.tree.splits import ListedSplits, ShardBy, Source, Unsplittable
from stoker.service import messages as m
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.simulation.faults import Crash, Drain, Fault
from tests.simulation.pipeline import Element, Pipeline, Plan, SourcePlan

BACK_SECONDS = 1.5
"""Time after which a worker comes back, as otherwise nobody reads its shard."""


def draw_policy(seed: int, plan: Plan, workers: int) -> ShardingPolicy | None:
    """Return the static policy of a seed; ``None`` if its sharding is not static."""
    rng = random.Random(f"static {seed}")
    if rng.random() >= 0.25:
        return None
    files = [len(source.files) if source.per_file else 1 for source in plan.sources]
    if rng.random() < 0.7 and all(source.per_file for source in plan.sources):
        enough = all(count == 0 or count >= workers for count in files)
        return ShardingPolicy.FILE if enough else ShardingPolicy.DATA
    return rng.choice([ShardingPolicy.DATA, ShardingPolicy.HINT])


def with_all_back(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Return faults after which every worker comes back."""
    return tuple(
        dataclasses.replace(fault, back=BACK_SECONDS)
        if isinstance(fault, Crash | Drain) and fault.back is None
        else fault
        for fault in faults
    )


def file_sources(plan: Plan) -> list[Source]:
    """Return the sources of a plan with the splits that shards of their files have."""
    return [
        Source(x.number, "sim", "", ListedSplits() if x.per_file else Unsplittable("no files"))
        for x in plan.sources
    ]


class ShardPipeline(Pipeline):
    """Run a task that reads a shard.

    Attributes:
        need_files: asks for files of the shard; `give_files` answers.
    """

    need_files: Callable[[int, int, int], None]

    def __init__(self, start: m.TaskStart, *arguments: Any) -> None:
        super().__init__(start, *arguments)
        assert isinstance(start.mode, m.ShardTask)
        self._shard = start.mode
        self._passed = 0
        self._page: m.ShardPage | None = None

    def give_files(self, page: m.ShardPage) -> None:
        """Answer a request for files."""
        assert self._asking, "files that nobody asked for"
        assert self._page is None, "two answers to one question"
        self._page = page
        self._after(0, self._step)

    def _splits(self, source: SourcePlan, source_epoch: int) -> Iterator[range | None]:
        shard = self._shard
        if shard.by is not ShardBy.FILES:
            first = (shard.index - self._passed) % shard.count
            self._passed += source.count
            yield range(first, source.count, shard.count)
            return
        start, end = 0, False
        while not end:
            self._asking = True
            self.need_files(self.task_id, source.number, start)
            yield None
            assert self._page is not None
            page, self._page, self._asking = self._page, None, False
            for name in page.values:
                yield source.read(name)
            start, end = start + len(page.values), page.end


def shard_elements(plan: Plan, by: ShardBy, count: int, index: int) -> list[Element]:
    """Return the elements of a shard, in order."""
    if by is not ShardBy.FILES:
        return plan.elements()[index::count]
    return [
        (source.number, source_epoch, k)
        for source_epoch in range(plan.epochs)
        for source in plan.sources
        for name in source.files[index::count]
        for k in source.read(name)
    ]
