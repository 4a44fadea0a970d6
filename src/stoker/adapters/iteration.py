"""An epoch of a loader."""

from collections.abc import Callable, Iterator
from typing import Any

from stoker.adapters.epochs import EpochProgress
from stoker.adapters.step_queue import StepQueue
from stoker.adapters.steps import Steps
from stoker.dataset.closing import Closing
from stoker.dataset.iterator import Iterator as DatasetIterator
from stoker.dataset.iterator import T_co


class LoaderIterator(Closing, Iterator[T_co]):
    """An epoch of a loader: its batches, in the form of its framework.

    Threads and connections are released at the end, by `close`, at the end of a ``with`` block, and
    by garbage collection.

    Args:
        iterator: of the dataset.
        progress: of the epoch.
        steps: reads the iterator and converts, on a thread if `prefetch` is given.
        receive: makes the batch of the converted step, on the thread of the reader; ``None``: the
            converted step is the batch.
        prefetch: batches that are converted ahead on a thread; 0: none.
    """

    def __init__(
        self,
        iterator: DatasetIterator,
        progress: EpochProgress,
        steps: Steps,
        receive: Callable[[Any], Any] | None = None,
        prefetch: int = 0,
    ) -> None:
        self._iterator = iterator
        self._progress = progress
        self._receive = receive
        self._read = steps.read
        self._queue: StepQueue | None = None
        if prefetch:
            # The end of the iterator unblocks a read of the thread.
            self._queue = StepQueue(self._read, iterator.close, prefetch)
            self._read = self._queue.read

    def __iter__(self) -> "LoaderIterator[T_co]":
        return self

    def __next__(self) -> T_co:
        step = self._read()
        if step.error is not None:
            self._progress.reach(step.position)
            try:
                raise step.error
            finally:  # this frame, which the traceback refers to, must not refer to the error
                del step, self
        if not step.batch:
            self._progress.ended = True
            raise StopIteration
        self._progress.reach(step.position)
        [batch] = step.batch
        made: T_co = batch if self._receive is None else self._receive(batch)
        return made

    def close(self) -> None:
        """Release threads, connections and buffers; idempotent. Reading afterwards raises."""
        if self._queue is not None:
            self._queue.close()
            self._read = self._iterator.__next__  # raises the error of a closed iterator
        self._iterator.close()

    def stats(self) -> dict[str, Any]:
        """Return the counters of the dataset's iterator; see `stoker.Iterator.stats`."""
        return self._iterator.stats()
