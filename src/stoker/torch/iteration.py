"""Iterator of a DataLoader, and its progress in the epoch."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

import torch

from stoker.adapters.epochs import Progress
from stoker.dataset.iterator import Iterator as DatasetIterator
from stoker.torch.prefetch import DeviceQueue, Step
from stoker.torch.steps import Steps
from stoker.torch.tensors import moved, pinned, to_tensors


class Delivery(NamedTuple):
    """The way from an element to the batch that the user gets.

    Attributes:
        batch_size: elements that `collate_fn` gets; ``None``: one, not in a list.
        drop_last: drop a last list of elements that is shorter.
        collate_fn: makes a batch; ``None``: the element is one.
        pin_memory: copy to page-locked memory.
        device: device of the tensors; ``None``: they stay where they are.
        prefetch: batches on a GPU ahead of the reader.
    """

    batch_size: int | None
    drop_last: bool
    collate_fn: Callable[[Any], Any] | None
    pin_memory: bool
    device: torch.device | None
    prefetch: int


class LoaderIterator(Iterator[Any]):
    """One epoch of a `DataLoader`: its batches, as tensors.

    Threads and connections are released at the end, by `close`, at the end of a ``with`` block, and
    by garbage collection.
    """

    def __init__(self, iterator: DatasetIterator, delivery: Delivery, progress: Progress) -> None:
        self._iterator = iterator
        self._progress = progress
        reader = _Reader(iterator, delivery)
        self._read: Callable[[], Step] = reader.read
        self._queue: DeviceQueue | None = None
        device = delivery.device
        if device is not None and device.type == "cuda" and delivery.prefetch:
            self._queue = DeviceQueue(reader.read, iterator.close, device, delivery.prefetch)
            self._read = self._queue.read
        elif device is not None:
            self._read = lambda: _moved(reader.read(), device)

    def __iter__(self) -> "LoaderIterator":
        return self

    def __next__(self) -> Any:
        step = self._read()
        if step.error is not None:
            self._progress.reach(step.position)
            raise step.error
        if not step.batch:
            self._progress.ended = True
            raise StopIteration
        self._progress.reach(step.position)
        return step.batch[0]

    def close(self) -> None:
        """Release threads, connections and buffers; idempotent. Reading afterwards raises."""
        if self._queue is not None:
            self._queue.close()
            self._read = self._iterator.__next__  # raises that it is closed
        self._iterator.close()

    def stats(self) -> dict[str, int]:
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
    """Makes batches of the elements that it reads."""

    def __init__(self, iterator: DatasetIterator, delivery: Delivery) -> None:
        self._steps = Steps(iterator, delivery.batch_size, delivery.drop_last)
        self._delivery = delivery

    def read(self) -> Step:
        """Return the next step; an error that occupies a position is in it."""
        try:
            holder = self._steps.read()
            batch = [self._batch_of(holder)] if holder else []
        except Exception as error:  # noqa: BLE001 - raised where the user reads
            return Step([], error, self._steps.position())
        return Step(batch, None, self._steps.position())

    def _batch_of(self, holder: list[Any]) -> Any:
        _, _, collate_fn, pin_memory, _, _ = self._delivery
        if collate_fn is None:
            return to_tensors(holder, pin_memory=pin_memory)
        if self._delivery.batch_size is None:
            batch = collate_fn(to_tensors(holder))
        else:
            waiting = holder.pop()[::-1]
            samples = []
            while waiting:
                samples.append(to_tensors([waiting.pop()]))
            batch = collate_fn(samples)
        return pinned(batch) if pin_memory else batch


def _moved(step: Step, device: torch.device) -> Step:
    return step._replace(batch=[moved(batch, device) for batch in step.batch])
