"""Measure where the time of one task goes."""

import logging
import time
from collections.abc import Callable

from stoker.dataset.streams.measure.recording import Meters
from stoker.dataset.streams.measure.sampling import Section
from stoker.dataset.streams.measure.stage_report import StageReport
from stoker.dataset.threads.pool import available_cpus
from stoker.service.loading import Loading, imported_module
from stoker.service.process.stopwatch import Stopwatch
from stoker.service.task_evidence import TaskEvidence
from stoker.service.worker.pipelines.computing_times import ComputingTimes

logger = logging.getLogger("stoker.worker")


class TaskMeter:
    """Times of one task. Its pipeline's threads update it, and any thread reads it.

    Args:
        splits: as in `TaskEvidence`.
        clock: returns the time in seconds.

    Attributes:
        times: measures the calls of the pipeline, and the waits of its sources for splits.
        put_wait: runs while the pipeline waits for room.
        stages: measures the stages of the pipeline.
        section: chooses the calls in which they are measured.
        has_output: the pipeline has delivered an element or an error.
    """

    def __init__(
        self,
        splits: dict[int, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._splits = splits or {}
        self._clock = clock
        self._created = clock()
        self._cores = available_cpus()
        self._began: float | None = None
        self._ended_at: float | None = None
        self._failed = False
        self.has_output = False
        self.stages = Meters()
        self.section = Section()
        self.times = ComputingTimes(clock)
        self.put_wait = Stopwatch(clock)

    def begin(self) -> None:
        """Record that the pipeline is open; importing what its functions need does not count."""
        self._began = self._clock()

    def end(self) -> None:
        """Record the end of the pipeline."""
        self._ended_at = self._clock()

    @property
    def ended(self) -> bool:
        """True after the end of the pipeline."""
        return self._ended_at is not None

    def evidence(self) -> TaskEvidence:
        """Return the present totals; the worker adds what it knows of the buffer."""
        until = self._clock() if self._ended_at is None else self._ended_at
        computing, split_wait = self.times.seconds
        return TaskEvidence(
            seconds=0.0 if self._began is None else until - self._began,
            computing=computing,
            put_wait=self.put_wait.seconds,
            split_wait=split_wait,
            ended=self.ended,
            cores=self._cores,
            splits=self._splits,
            stages=self._reports(),
            loading=self._loading(until, computing),
        )

    def _loading(self, until: float, computing: float) -> Loading | None:
        if self.has_output or self.ended:
            return None
        module = imported_module()
        if self._began is None:
            return Loading(module, until - self._created)
        return Loading(module, self._began - self._created + computing) if module else None

    def _reports(self) -> list[StageReport]:
        """Return the measurements of the stages; without them the task goes on."""
        try:
            return self.stages.recording.reports()
        except Exception:
            if not self._failed:
                logger.exception("the stages of a pipeline cannot be measured")
            self._failed = True
            return []
