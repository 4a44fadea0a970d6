"""The pipelines of the tasks of a worker."""

import logging
import threading

from stoker.service import messages as m
from stoker.service.loading import Loading
from stoker.service.task_evidence import TaskEvidence
from stoker.service.worker import actions as a
from stoker.service.worker.pipelines.dataset_cache import DatasetCache
from stoker.service.worker.pipelines.pipeline import Pipeline, PipelineHost, task_fields
from stoker.service.worker.pipelines.row_registry import RowRegistry
from stoker.service.worker.pipelines.turn_pipeline import TurnPipeline

logger = logging.getLogger("stoker.worker")

EVIDENCE_SECONDS, EVIDENCE_SECONDS_PER_TASK = 0.5, 0.02
"""Interval of the reports of where the time of tasks goes, at least; with many tasks longer."""


class TaskPipelines:
    """Starts and stops the pipelines of tasks, and passes on what they wait for.

    Args:
        host: the worker.
        datasets: the datasets of its tasks.
        lock: acquired by those who call `execute`.

    Attributes:
        loading: why the task that has waited longest for its first element waits, as of the latest
            `evidence`; ``None`` if no task waits for its functions.
    """

    def __init__(self, host: PipelineHost, datasets: DatasetCache, lock: threading.RLock) -> None:
        self._host = host
        self._datasets = datasets
        self._lock = lock
        self._rows = RowRegistry()
        self._pipelines: dict[int, Pipeline] = {}
        self._evidence_at = 0.0
        self.loading: Loading | None = None

    def execute(self, action: a.PipelineAction) -> bool:
        """Execute an action, under the lock; return whether a pipeline was stopped."""
        if isinstance(action, a.OpenTask):
            self._open(action.start)
            return False
        task_id = action.page.task_id if isinstance(action, a.GiveFiles) else action.task_id
        pipeline = self._pipelines.get(task_id)
        if pipeline is None:
            return False
        if isinstance(action, a.Produce):
            pipeline.resume()
        elif isinstance(action, a.GiveSplit):
            pipeline.answer(action.source, action.source_epoch, action.split)
        elif isinstance(action, a.GiveTurn):
            assert isinstance(pipeline, TurnPipeline)
            pipeline.give_turn(action.turn)
        elif isinstance(action, a.GiveFiles):
            pipeline.answer(action.page.source, action.page.start, action.page)
        elif isinstance(action, a.DrainPipeline):
            pipeline.draining = True
        else:
            pipeline.close()
            del self._pipelines[task_id]
            self._datasets.release(pipeline.start.dataset_id)
            if isinstance(pipeline, TurnPipeline):
                self._rows.release(pipeline.start)
            return True
        return False

    def _open(self, start: m.TaskStart) -> None:
        fields = {"worker": self._host.address, **task_fields(start)}
        logger.info("a task begins", extra=fields)
        # Before the pipeline asks for the tree, which an idle dataset may lose at any time.
        self._datasets.acquire(start.dataset_id)
        self._pipelines[start.task_id] = self._pipeline(start)

    def _pipeline(self, start: m.TaskStart) -> Pipeline:
        if isinstance(start.mode, m.PositionTask):
            return TurnPipeline(start, self._host, self._rows.acquire(start))
        return Pipeline(start, self._host)

    def evidence(self, now: float) -> list[tuple[int, TaskEvidence]]:
        """Return where the time of running tasks goes, if it is due; at most twice a second."""
        if now < self._evidence_at:
            return []
        with self._lock:
            pipelines = list(self._pipelines.items())
        self._evidence_at = now + max(EVIDENCE_SECONDS, len(pipelines) * EVIDENCE_SECONDS_PER_TASK)
        # Outside the lock: measuring all stages of many tasks takes milliseconds.
        found = [(task_id, x.measure()) for task_id, x in pipelines if not x.meter.ended]
        loading = (x.loading for _, x in found if x.loading is not None)
        self.loading = max(loading, key=lambda x: x.seconds, default=None)
        return found

    def remove_all(self) -> list[Pipeline]:
        """Return the pipelines, which the caller closes."""
        with self._lock:
            pipelines = list(self._pipelines.values())
            self._pipelines.clear()
        return pipelines
