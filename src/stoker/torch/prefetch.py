"""Steps of an epoch that are moved to a GPU while the trainer computes."""

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from stoker.elements.structure import flatten
from stoker.torch.tensors import moved


class Step(NamedTuple):
    """One step of an epoch.

    Attributes:
        batch: the batch in a list of one; empty at the end, or if there was an error.
        error: raised in place of the batch.
        position: elements and errors that were read up to here.
        ready: event that is recorded when the batch is on its device; ``None`` if it is there.
    """

    batch: list[Any]
    error: BaseException | None = None
    position: int = 0
    ready: Any = None


class DeviceQueue:
    """Reads steps on a thread, and copies them to a GPU on a CUDA stream of its own.

    Args:
        read: returns the next step, in page-locked memory; called until it returns the end.
        unblock: ends a call of `read` that waits.
        device: a CUDA device.
        size: steps that wait on the device.
    """

    def __init__(
        self,
        read: Callable[[], Step],
        unblock: Callable[[], None],
        device: torch.device,
        size: int,
    ) -> None:
        self._device = device
        self._steps: queue.Queue[Step] = queue.Queue(size)
        self._end: Step | None = None
        stopping = threading.Event()
        thread = threading.Thread(
            target=_run,
            args=(read, device, self._steps, stopping),
            name="stoker-device",
            daemon=True,
        )
        # The thread refers to no part of this object, which therefore is freed with its reader.
        self._finalizer = weakref.finalize(self, _stop, unblock, stopping, self._steps, thread)
        thread.start()

    def read(self) -> Step:
        """Return the next step; its tensors can be used on the current stream of the device."""
        if self._end is not None:
            return self._end
        step = self._steps.get()
        if not step.batch and step.error is None:
            self._end = step
        if step.ready is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(step.ready)
            for leaf in flatten(step.batch):
                if isinstance(leaf, torch.Tensor):
                    # The allocator must not reuse its memory before this stream has used it.
                    leaf.record_stream(stream)
        return step

    def close(self) -> None:
        """End the thread; idempotent."""
        self._finalizer()


def _run(
    read: Callable[[], Step],
    device: torch.device,
    steps: "queue.Queue[Step]",
    stopping: threading.Event,
) -> None:
    stream = torch.cuda.Stream(device)
    while not stopping.is_set():
        try:
            step = read()
            if step.batch:
                step = _copied(step, device, stream)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that trains
            step = Step([], error)
        steps.put(step)
        if not step.batch and step.error is None:
            return


def _copied(step: Step, device: torch.device, stream: Any) -> Step:
    with torch.cuda.stream(stream):
        batch = [moved(step.batch[0], device)]
        ready = torch.cuda.Event()
        ready.record(stream)
    return step._replace(batch=batch, ready=ready)


def _stop(
    unblock: Callable[[], None],
    stopping: threading.Event,
    steps: "queue.Queue[Step]",
    thread: threading.Thread,
) -> None:
    stopping.set()
    unblock()
    # The garbage collector may run this on any thread.
    while thread.is_alive() and thread is not threading.current_thread():
        try:  # the thread may wait for room
            steps.get(timeout=0.01)
        except queue.Empty:
            continue
