"""Measure where the time of one task goes."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stoker.dataset.streams.measure.recording import Meters
from stoker.dataset.streams.measure.sampling import Section
from stoker.dataset.streams.measure.stage_report import StageReport
from stoker.dataset.streams.measure.stopwatch import Stopwatch
from stoker.dataset.threads.pool import available_cpus
from stoker.service.loading import Loading, imported_module
from stoker.service.task_evidence import TaskEvidence

logger = logging.getLogger("stoker.worker")


class ComputingTimes:
    """Seconds in which a pipeline is read, and the part of them in which it waited for a split.

    Its sources may wait for splits on several threads, while others compute elements of earlier
    splits. A wait counts from the begin of the call of the pipeline in which it ends: before that,
    and in calls that end before the wait does, elements came without the split.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reads = Stopwatch(clock)
        self._lacked = 0.0
        self._counted_until = math.inf
        """Time in the present call until which waits are part of `_lacked`; inf without a call."""
        self._waiting_since: dict[int, float] = {}
        """The sources that wait, by their threads."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Measure a call of the pipeline, on one thread at a time."""
        with self._lock:
            self._counted_until = self._clock()
            self._reads.run(1, self._counted_until)
        try:
            yield
        finally:
            with self._lock:
                self._reads.run(0)
                self._counted_until = math.inf

    @contextmanager
    def lacking_split(self) -> Iterator[None]:
        """Measure a wait of a source, on any thread."""
        thread = threading.get_ident()
        with self._lock:
            self._waiting_since[thread] = self._clock()
        try:
            yield
        finally:
            with self._lock:
                now = self._clock()
                if (lacked := self._lack(self._waiting_since.pop(thread), now)) > 0:
                    self._lacked += lacked
                    self._counted_until = now

    @property
    def seconds(self) -> tuple[float, float]:
        """The seconds of computing, and of waiting for splits; the present call included."""
        with self._lock:
            now = self._clock()
            since = min(self._waiting_since.values(), default=now)
            lacked = self._lacked + self._lack(since, now)
            return self._reads.seconds(now) - lacked, lacked

    def _lack(self, since: float, now: float) -> float:
        """Return the seconds of a wait in the present call that are not part of `_lacked`."""
        return max(0.0, now - max(since, self._counted_until))


# Evidence is sent by a timer and not with frames, because a task that is stuck sends no frame.
# (docs/decisions/036)
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
        ended: the pipeline has ended.
    """

    def __init__(
        self,
        splits: dict[int, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._splits = splits or {}
        self._cores = available_cpus()
        self._opening, self._open = Stopwatch(clock), Stopwatch(clock)
        self._opening.run(1)
        self._began = False
        self._failed = False
        self.ended = False
        self.has_output = False
        self.stages = Meters()
        self.section = Section()
        self.times = ComputingTimes(clock)
        self.put_wait = Stopwatch(clock)

    def begin(self) -> None:
        """Record that the pipeline is open; importing what its functions need does not count."""
        self._began = True
        self._opening.run(0)
        self._open.run(1)

    def end(self) -> None:
        """Record the end of the pipeline."""
        self.ended = True
        self._open.run(0)

    def evidence(self) -> TaskEvidence:
        """Return the present totals; the worker adds what it knows of the buffer."""
        computing, split_wait = self.times.seconds
        return TaskEvidence(
            seconds=self._open.seconds(),
            computing=computing,
            put_wait=self.put_wait.seconds(),
            split_wait=split_wait,
            ended=self.ended,
            cores=self._cores,
            splits=self._splits,
            stages=self._reports(),
            loading=self._loading(computing),
        )

    def _loading(self, computing: float) -> Loading | None:
        if self.has_output or self.ended:
            return None
        # A first call that imports a framework looks like a pipeline that hangs.
        module = imported_module()
        if module or not self._began:
            return Loading(module, self._opening.seconds() + computing)
        return None

    def _reports(self) -> list[StageReport]:
        """Return the measurements of the stages; without them the task goes on."""
        try:
            return self.stages.recording.reports()
        except Exception:
            if not self._failed:
                logger.exception("the stages of a pipeline cannot be measured")
            self._failed = True
            return []
