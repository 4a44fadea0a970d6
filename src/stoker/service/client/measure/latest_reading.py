"""The latest reading of a client; outlives its stream."""

import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stoker.dataset.streams.measure.bottleneck import LEAST_SECONDS, Bottleneck, Pass
from stoker.dataset.streams.measure.stage_report import StageReport
from stoker.service.client.measure.reading import Reading
from stoker.service.client.measure.service_bottleneck import find_service_bottleneck
from stoker.service.client.measure.slow_worker import summed


class LatestReading:
    """The reading of one client, also after its stream was closed and collected.

    Statistics outlive an iterator, and must not keep the elements that it has received.

    Args:
        read: a method of the stream, which is not kept alive.
    """

    def __init__(self, read: Callable[[], Reading]) -> None:
        # Weakly: statistics are kept by users after the epoch, and elements with them otherwise.
        self._read = weakref.WeakMethod(read)
        self._last = Reading(seconds=0.0, waited=0.0)
        self._before: LatestReading | None = None
        self._pid = os.getpid()

    def follow(self, before: "LatestReading") -> None:
        """Show the reading of an earlier epoch until workers have reported of this one."""
        shown = before._shown()
        if _is_known(shown.update()):
            self._before = shown

    def update(self) -> Reading:
        """Return the present reading; in a forked child or after its stream, the last one."""
        read = self._read()
        # In a child, the lock of the stream may be one that a thread of the parent acquired.
        if read is not None and self._pid == os.getpid():
            self._last = read()
        return self._last

    def bottleneck(self, read: Pass) -> Bottleneck:
        """Return what limits the service, given that the consumer waits; from any thread.

        Args:
            read: the times of the consumer, for which a later stage may read ahead.
        """
        return find_service_bottleneck(replace(self._shown().update(), read=read))

    def stages(self) -> list[StageReport]:
        """Return the stages of the workers, summed over their tasks."""
        found = [task.evidence for task in self._shown().update().tasks]
        return summed(evidence.stages for evidence in found if evidence is not None)

    def tasks(self) -> list[dict[str, Any]]:
        """Return the amounts and waits of each task, for `Iterator.stats`."""
        return [task.to_dict() for task in self._shown().update().tasks]

    def _shown(self) -> "LatestReading":
        if self._before is not None and not _is_known(self.update()):
            return self._before
        self._before = None
        return self


def _is_known(reading: Reading) -> bool:
    """Return whether a worker has reported enough to be judged."""
    found = [task.evidence for task in reading.tasks]
    return any(x is not None and (x.ended or x.seconds >= LEAST_SECONDS) for x in found)
