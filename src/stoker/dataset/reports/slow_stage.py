"""Find the slowest stage of a pipeline."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stoker.dataset.streams.measure.stage_report import FIRST_NESTED, StageReport
from stoker.dataset.tree.reachable import reachable

# A function whose thread has a core for less than this fraction of the time waits for something
# else than a core, unless the machine is very busy.
_WAITS = 0.25

# Less than this fraction of the elapsed time in all stages explains no delay.
_LEAST_SHARE = 0.02

READS_FILES = frozenset({"records", "list_files", "load"})


class SlowStage(NamedTuple):
    """The stage that limits a pipeline.

    Attributes:
        report: its measurements.
        share: its fraction of the time of the thread that it runs on; if `saturated`, the fraction
            of the time in which its own threads were busy.
        saturated: its own threads compute, rather than the thread that reads it.
        threads: the threads that read it.
    """

    report: StageReport
    share: float
    saturated: bool
    threads: int

    @property
    def is_source(self) -> bool:
        """True if the stage makes elements or reads them from files."""
        return not self.report.inputs or self.report.kind in READS_FILES

    @property
    def waits(self) -> bool:
        """True if the function waits for something rather than computes."""
        return self.report.cpu is not None and self.report.cpu < _WAITS


def find_slow_stage(stages: Sequence[StageReport], elapsed: float) -> SlowStage | None:
    """Return the stage that limits a pipeline whose consumer waits; None if no time was measured.

    A pipeline is cut where threads read ahead: at stages with a buffer. From the consumer on, the
    slowest stage of a part is found: by its own time, or for a stage with a buffer by the time for
    which it is waited for. Such a stage limits if its threads are busy, otherwise its input does.

    Args:
        stages: of one process; of those that no other reads, the consumer reads the one that is
            waited for longest.
        elapsed: seconds since the consumer first asked for an element.
    """
    by_number = {stage.number: stage for stage in stages}
    read = {number for stage in stages for number in stage.inputs}
    roots = [stage for stage in stages if stage.number not in read]
    if not roots or elapsed <= 0:
        return None
    starts = [max(roots, key=lambda stage: stage.get_wait)]
    threads = 1
    while True:
        part = _part(starts, by_number)
        total = sum(map(_weight, part))
        if total < _LEAST_SHARE * elapsed:
            return None
        slowest = max(part, key=_weight)
        if slowest.occupancy is None or not slowest.inputs:
            share = min(1.0, _weight(slowest) / total)
            return SlowStage(slowest, share, saturated=False, threads=threads)
        inputs = [by_number[number] for number in slowest.inputs if number in by_number]
        saturation = slowest.busy / (max(1, slowest.parallel) * elapsed)
        supply = max((_pressure(each, slowest, elapsed) for each in inputs), default=0.0)
        if saturation >= supply or not inputs:
            share = min(1.0, saturation)
            return SlowStage(slowest, share, saturated=True, threads=threads)
        starts, threads = inputs, max(1, slowest.parallel)


def _part(starts: Sequence[StageReport], stages: Mapping[int, StageReport]) -> list[StageReport]:
    """Return the stages that run on the thread of `starts`, and the buffered ones they read."""

    def inputs_of(number: int) -> list[int]:
        stage = stages[number]
        return [each for each in stage.inputs if each in stages and stage.occupancy is None]

    return [stages[number] for number in reachable((x.number for x in starts), inputs_of)]


def _weight(stage: StageReport) -> float:
    return stage.busy if stage.occupancy is None else stage.get_wait


def _pressure(stage: StageReport, reader: StageReport, elapsed: float) -> float:
    """Return the fraction of the time in which the threads of `reader` waited for an input."""
    # Datasets that a function returned are read by all threads of an interleave, others by one.
    threads = max(1, reader.parallel) if stage.number >= FIRST_NESTED else 1
    return stage.get_wait / (threads * elapsed)
