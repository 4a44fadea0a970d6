"""Measurements of one epoch, which outlive its iterator."""

import weakref
from collections.abc import Callable
from typing import Any

import msgspec

from stoker.dataset.streams.measure.bottleneck import Bottleneck, Pass, find_bottleneck
from stoker.dataset.streams.measure.read_times import ReadTimes
from stoker.dataset.streams.measure.recording import Meters
from stoker.dataset.streams.measure.stage_report import FIRST_NESTED, StageReport


class Measurements:
    """Times of one epoch and of its stages; keeps no element and no stream.

    Args:
        meters: of the pipeline.

    Attributes:
        recording: of the pipeline.
        reads: times of the iterator's reads.
    """

    def __init__(self, meters: Meters) -> None:
        self.recording = meters.recording
        self.reads = ReadTimes()
        self._received: Callable[[], int | None] = lambda: 0
        look = weakref.WeakMethod(self.look)
        self.recording.judge = lambda: None if (found := look()) is None else found()[2]

    def begin(self, received: Callable[[], int]) -> None:
        """Note that an iterator begins to read.

        Args:
            received: a method that returns the elements that it yielded; the iterator is not kept
                alive.
        """
        method = weakref.WeakMethod(received)
        self._received = lambda: None if (found := method()) is None else found()

    def end(self, elements: int) -> None:
        """Note that the iterator reads no more, and the elements that it yielded."""
        self._received = lambda: elements

    def look(self) -> tuple[Pass, list[StageReport], Bottleneck]:
        """Return the times of the iterator, of the stages, and what limits the iterator."""
        received = self._received()
        stages = self.recording.reports(received)
        if received is None:  # the iterator was dropped
            own = [stage.elements for stage in stages if stage.number < FIRST_NESTED]
            received = own[-1] if own else 0
        times = self.reads.times(received)
        asked = {at: service.bottleneck for at, service in self.recording.services.items()}
        return times, stages, find_bottleneck(times, stages, asked)

    def snapshot(self) -> dict[str, Any]:
        """Return what `Iterator.stats` adds to its counters."""
        times, stages, found = self.look()
        services = list(self.recording.services.values())
        tasks = {"tasks": [task for each in services for task in each.tasks()]} if services else {}
        return tasks | {
            "seconds": times.elapsed,
            "waited": times.waited,
            "bottleneck": found.kind,
            "sentence": found.sentence,
            "stages": [msgspec.to_builtins(stage) for stage in stages],
        }
