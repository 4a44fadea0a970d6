"""One epoch of a loader."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from stoker.adapters.epochs import Progress
from stoker.adapters.step_queue import Step, StepQueue
from stoker.adapters.steps import Steps
from stoker.dataset.iterator import Iterator as DatasetIterator


class LoaderIterator(Iterator[Any]):
    """One epoch of a loader: its batches, in the form of its framework.

    Threads and connections are released at the end, by `close`, at the end of a ``with`` block, and
    by garbage collection.

    Args:
        iterator: of the dataset.
        progress: of the epoch.
        steps: reads the iterator.
        convert: makes a batch of what `steps` read, which is in a list that it empties; on a
            thread if `prefetch` is given. Returns it with the `ready` of its step.
        receive: called with each step on the thread of the reader.
        prefetch: batches that are converted ahead on a thread; 0: none.
    """

    def __init__(
        self,
        iterator: DatasetIterator,
        progress: Progress,
        steps: Steps,
        convert: Callable[[list[Any]], tuple[Any, Any]],
        receive: Callable[[Step], None] | None = None,
        prefetch: int = 0,
    ) -> None:
        self._iterator = iterator
        self._progress = progress
        self._receive = receive
        self._read = _Reader(steps, convert).read
        self._queue: StepQueue | None = None
        if prefetch:
            self._queue = StepQueue(self._read, iterator.close, prefetch)
            self._read = self._queue.read

    def __iter__(self) -> "LoaderIterator":
        return self

    def __next__(self) -> Any:
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
        if self._receive is not None:
            self._receive(step)
        return step.batch[0]

    def close(self) -> None:
        """Release threads, connections and buffers; idempotent. Reading afterwards raises."""
        if self._queue is not None:
            self._queue.close()
            self._read = self._iterator.__next__  # raises that it is closed
        self._iterator.close()

    def stats(self) -> dict[str, Any]:
        """Return the counters of the dataset's iterator; see `stoker.Iterator.stats`."""
        return self._iterator.stats()

    def __enter__(self) -> "LoaderIterator":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Reader:
    """Reads steps, with the errors that occupy positions in them."""

    def __init__(self, steps: Steps, convert: Callable[[list[Any]], tuple[Any, Any]]) -> None:
        self._steps = steps
        self._convert = convert

    def read(self) -> Step:
        """Return the next step."""
        try:
            holder = self._steps.read()
            if not holder:
                return Step([], None, self._steps.position())
            batch, ready = self._convert(holder)
        except Exception as error:  # noqa: BLE001 - raised where the user reads
            return Step([], error, self._steps.position())
        return Step([batch], None, self._steps.position(), ready)
