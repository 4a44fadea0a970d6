"""A task's pipeline: a thread that opens the dataset and computes while the buffer has room."""

import itertools
import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol, TypeVarTuple

import numpy as np
import numpy.typing as npt

from stoker.dataset.dataset import Dataset
from stoker.dataset.drawn_seeds import salts_by_number
from stoker.dataset.global_generators import is_worker_process
from stoker.dataset.options import Options
from stoker.dataset.sharding import with_shard
from stoker.dataset.streams.calls.call_recorder import CallRecorder
from stoker.dataset.streams.calls.task_calls import TaskCalls, recorded_unplaced
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.measure.statistics import Statistics
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node, number
from stoker.dataset.tree.splits import SplitReader, StaticShard
from stoker.elements.codec.encodable import encodable_bytes
from stoker.errors import ErrorRecord, FailedPreconditionError, InvalidArgumentError
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.process.logs import epoch_text
from stoker.service.task_evidence import TaskEvidence
from stoker.service.worker.actions import Action
from stoker.service.worker.buffers.chunk_queue import FRAME_ELEMENTS
from stoker.service.worker.logic import Worker
from stoker.service.worker.pipelines.failure import describe
from stoker.service.worker.pipelines.task_meter import TaskMeter
from stoker.service.worker.tasks.split_values import split_from_wire

logger = logging.getLogger("stoker.worker")

Arguments = TypeVarTuple("Arguments")


RUNS = 64
"""Runs of a coordinated read that are computed at a time: buffers hold a few times as many."""

LOGGED_IMPORT_SECONDS = 5.0
"""Time without an element after which the worker logs which module is imported."""


class PipelineHost(Protocol):
    """Interface of the worker to its pipelines; callable from any thread.

    Attributes:
        address: the worker's address, for errors.
        chunk_bytes: about how many bytes to compute between two checks for room.
        calls: records the calls of user functions in flight; ``None``: they are not recorded.
    """

    address: str
    chunk_bytes: int
    calls: CallRecorder | None

    def load(self, dataset_id: str, closed: threading.Event | None = None) -> tuple[Node, Options]:
        """Return a new tree of a registered dataset, and its options.

        While the dispatcher cannot be reached, try again until `closed`, or without it until the
        worker stops.

        Raises:
            NotFoundError: if the dispatcher does not know the dataset.
            UnavailableError: if closed or stopped.
        """

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an array for a batch that is sent: in shared memory, if a client can map it."""

    def produced(self, task_id: int, chunk: Chunk) -> bool:
        """Deliver a chunk; return whether there is room for more."""

    def failed(self, start: m.TaskStart, error: ErrorRecord) -> None:
        """Log an error of a task, which its clients get too."""

    def call(
        self, method: Callable[[Worker, *Arguments], list[Action]], *arguments: *Arguments
    ) -> None:
        """Report an event to the worker's logic."""

    def need_split(self, task_id: int, source: int, source_epoch: int) -> None:
        """Ask for a split; `Pipeline.answer` gets ``[value]``, or ``[]`` at the end."""

    def need_files(self, task_id: int, source: int, start: int) -> None:
        """Ask for files of the task's shard; `Pipeline.answer` gets a page."""

    def need_turn(self, task_id: int) -> None:
        """Ask for the positions that the pipeline computes next."""


class Pipeline:
    """Run one task on its own thread until its end or until closed.

    Args:
        start: the task.
        host: the worker.

    Attributes:
        start: the task.
        draining: as in `SplitReader`.
        meter: measures where its time goes.
    """

    def __init__(self, start: m.TaskStart, host: PipelineHost) -> None:
        self.draining = False
        self.meter = TaskMeter({x.number: x.splits for x in start.mode.split_sources or ()})
        self._logged_import = False
        self.start = start
        self._host = host
        self._statistics = Statistics()
        self._counts: dict[str, int] = {}
        self._closed = threading.Event()
        self._room = threading.Event()
        # A task asks for splits or for files of its shard, so that the pairs of numbers are unique.
        self._asked: dict[tuple[int, int], list[queue.SimpleQueue[Any]]] = defaultdict(list)
        self._source_epochs: dict[int, Iterator[int]] = defaultdict(itertools.count)
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._run, name=f"stoker-task-{start.task_id & 0xFFFFF}", daemon=True
        )
        self._thread.start()

    def resume(self) -> None:
        """Continue: the buffer has room again."""
        self._room.set()

    def measure(self) -> TaskEvidence:
        """Return where its time goes; log once that it waits for an import for long."""
        evidence = self.meter.evidence()
        loading = evidence.loading
        if loading is not None and loading.module and not self._logged_import:
            self._logged_import = loading.seconds >= LOGGED_IMPORT_SECONDS
            if self._logged_import:
                fields = {"worker": self._host.address, **task_fields(self.start)}
                logger.info("a task %s", loading, extra=fields)
        return evidence

    def answer(self, source: int, number: int, answer: list[Any] | m.ShardPage | None) -> None:
        """Answer `PipelineHost.need_split` and `need_files`; ``None``: the pipeline is closed."""
        with self._lock:
            for waiting in self._asked.pop((source, number), ()):
                waiting.put(answer)

    def _ask(self, need: Callable[[int, int, int], None], source: int, number: int) -> Any:
        """Return the answer of the worker.

        Raises:
            FailedPreconditionError: if the pipeline is closed.
        """
        waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._lock:
            if not self._closed.is_set():
                self._asked[source, number].append(waiting)
            else:
                waiting.put(None)
        need(self.start.task_id, source, number)
        answer = waiting.get()
        if answer is None:
            # Not StopIteration, after which an infinite repeat would start its next epoch.
            raise FailedPreconditionError(f"task {self.start.task_id} is closed")
        return answer

    def close(self) -> None:
        """Stop without waiting for a user function that runs."""
        self._closed.set()
        self._room.set()
        with self._lock:  # a thread that has seen the pipeline open has added its question
            asked = list(self._asked)
        for key in asked:
            self.answer(*key, None)

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout)

    def open(self, source: int) -> Iterator[Any]:
        """Yield the splits of a source for its next epoch, as `SplitReader.open` does."""
        epoch = next(self._source_epochs[source])
        while True:
            with self.meter.times.lacking_split():
                split = self._ask(self._host.need_split, source, epoch)
            if not split:
                return
            yield split_from_wire(split[0])

    def _run(self) -> None:
        self._compute()
        self.meter.end()
        if not self._closed.is_set():
            self._report_counts()
            self._host.call(Worker.measured, self.start.task_id, self.meter.evidence())
            self._host.call(Worker.exhausted, self.start.task_id)

    def _compute(self) -> None:
        try:
            stream = self._open_stream()
        except BaseException as error:  # noqa: BLE001 - the trainer gets any error
            self._report(describe(error, self._host.address, 0))
            return
        self._produce(stream)
        try:
            stream.close()
        except Exception:  # all elements are delivered: the task has ended
            logger.exception("a pipeline failed at its end", extra=task_fields(self.start))

    def _open_stream(self) -> Stream:
        root, context = self._load()
        with recorded_unplaced(context.calls):
            return open_stream(root, context)

    def _load(self) -> tuple[Node, Context]:
        """Return the tree to run, and its context."""
        root, options = self._host.load(self.start.dataset_id, self._closed)
        salts = salts_by_number(number(root), self.start.salts)
        root, numbers, shard = self._shard(root)
        # Batches that are kept for other trainers would fill the shared memory.
        keeps = self.start.mode.sharing.keeps_sent
        return root, Context(
            seed=self.start.seed if options.seed is None else options.seed,
            seed_given=options.seed is not None,
            seed_globals=bool(options.seed_globals) and is_worker_process(),
            salts=salts,
            threads=options.threads,
            epoch=self.start.epoch,
            explicit_epoch=True,
            numbers=numbers,
            shard=shard,
            splits=None if self.start.mode.split_sources is None else self,
            statistics=self._statistics,
            meters=self.meter.stages,
            allocate=np.empty if keeps else self._host.allocate,
            make_dataset=Dataset,
            calls=self._record_calls(),
        )

    def _shard(self, root: Node) -> tuple[Node, Mapping[Node, int], StaticShard | None]:
        """Return the tree that the task reads, its numbers, and its shard under static sharding."""
        numbers, mine = number(root), self.start.mode
        if not isinstance(mine, m.ShardTask):
            return root, numbers, None
        tree, found, nodes = with_shard(root, numbers, mine.by, mine.count, mine.index)
        files = _ShardFiles(partial(self._ask, self._host.need_files))
        return tree, found, StaticShard(files, nodes)

    def _record_calls(self) -> TaskCalls | None:
        start, recorder = self.start, self._host.calls
        if recorder is None:
            return None
        return TaskCalls(recorder, start.task_id, start.traced, start.suspects, start.poisoned)

    def _produce(self, stream: Stream) -> None:
        position = 0
        self.meter.begin()
        # More runs than are buffered would only delay the first.
        most = min(FRAME_ELEMENTS, RUNS * (self.start.mode.sharing.run or FRAME_ELEMENTS))
        while not self._closed.is_set():
            try:
                with self.meter.times.reading():
                    elements = self.meter.section.read(stream, most, self._host.chunk_bytes)
            except BaseException as error:  # noqa: BLE001 - it occupies its element's position
                self._report(describe(error, self._host.address, position))
                if not isinstance(error, Exception):  # the stream is undefined after sys.exit
                    return
                position += 1
                continue
            if not elements:
                return
            positions = range(position, position + len(elements))
            for chunk in chunks_of(elements, self._host.address, positions):
                self._deliver(chunk)
            position = positions.stop

    def _report(self, error: ErrorRecord) -> None:
        self._deliver(chunk_of_error(error))

    def _report_counts(self) -> None:
        counts = self._statistics.counts()
        if counts != self._counts:
            self._counts = counts
            self._host.call(Worker.counted, self.start.task_id, counts)

    def _deliver(self, chunk: Chunk) -> None:
        self.meter.has_output = True
        self._report_counts()
        if chunk.error is not None and not self._closed.is_set():
            self._host.failed(self.start, chunk.error)
        # Cleared first: the room may be made while `produced` returns.
        self._room.clear()
        if not self._host.produced(self.start.task_id, chunk) and not self._closed.is_set():
            with self.meter.put_wait:
                self._room.wait()


class _ShardFiles(SplitReader):
    """Supplies the sources of a pipeline with the files of its shard.

    Args:
        ask: returns the page of a source that begins at a position.
    """

    def __init__(self, ask: Callable[[int, int], m.ShardPage]) -> None:
        self._ask = ask

    def open(self, source: int) -> Iterator[Any]:
        """Yield the same files in each epoch of the source."""
        start, page = 0, None
        while page is None or not page.end:
            page = self._ask(source, start)
            yield from map(split_from_wire, page.values)
            start += len(page.values)


def task_fields(start: m.TaskStart) -> dict[str, Any]:
    """Return the `logs.FIELDS` of a task."""
    return {"job": start.job, "epoch": epoch_text(start.epoch), "task": start.task_id}


def chunks_of(elements: list[Any], worker: str, positions: range) -> Iterator[Chunk]:
    """Yield the elements as chunks, with an error in place of each that cannot be encoded.

    Args:
        elements: consecutive elements of a task.
        worker: the worker's address, for the error.
        positions: of the elements, in the task's stream or in the epoch.
    """
    try:
        size = encodable_bytes(elements)
    except InvalidArgumentError as error:
        if len(elements) == 1:
            yield chunk_of_error(describe(error, worker, positions[0]))
        else:
            # Elements before and after the bad one are delivered: they are found by bisection.
            middle = len(elements) // 2
            yield from chunks_of(elements[:middle], worker, positions[:middle])
            yield from chunks_of(elements[middle:], worker, positions[middle:])
    else:
        yield Chunk(elements, size)


def chunk_of_error(error: ErrorRecord) -> Chunk:
    """Return the chunk of a position with an error."""
    return Chunk([], len(error.message) + len(error.remote_traceback), error)
