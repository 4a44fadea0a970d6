"""Measurements of one epoch, which outlive its iterator."""

import weakref
from typing import Any

import msgspec

from stoker.dataset.bottleneck import Bottleneck, Pass, find_bottleneck
from stoker.dataset.streams.consumer import Consumer
from stoker.dataset.streams.meters import Meters
from stoker.dataset.streams.stage_report import StageReport


class Measurements:
    """Times of one epoch and of its stages; keeps no element and no stream.

    Args:
        meters: of the pipeline.

    Attributes:
        meters: of the pipeline.
        consumer: times of the iterator's reads.
    """

    def __init__(self, meters: Meters) -> None:
        self.meters = meters
        self.consumer = Consumer(meters)
        self._elements: int | None = None
        look = weakref.WeakMethod(self.look)
        meters.judge = lambda: None if (found := look()) is None else found()[2]

    def end(self, elements: int) -> None:
        """Note that the iterator reads no more, and the elements that it yielded."""
        self._elements = elements
        self.meters.stop()

    def look(self, elements: int | None = None) -> tuple[Pass, list[StageReport], Bottleneck]:
        """Return the times of the iterator, of the stages, and what limits the iterator.

        Args:
            elements: the number of elements yielded; None if only the stages know it.
        """
        if elements is None:
            elements = self._elements
        stages = self.meters.reports(elements)
        if elements is None:
            elements = stages[-1].elements if stages else 0
        times = self.consumer.times(elements)
        return times, stages, find_bottleneck(times, stages, self.meters.services)

    def snapshot(self, elements: int) -> dict[str, Any]:
        """Return what `Iterator.stats` adds to its counters."""
        times, stages, found = self.look(elements)
        services = list(self.meters.tasks.values())
        tasks = {"tasks": [task for ask in services for task in ask()]} if services else {}
        return tasks | {
            "seconds": times.elapsed,
            "waited": times.waited,
            "bottleneck": found.kind,
            "sentence": found.sentence,
            "stages": [msgspec.to_builtins(stage) for stage in stages],
        }
