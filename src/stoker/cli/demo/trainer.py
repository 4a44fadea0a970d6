"""The trainer process of the demo: ``python -m stoker.cli.demo.trainer JOB``.

JOB is a `DemoJob` as JSON. JSON lines are written to stdout: a `Progress` every 0.1 s, then a
`Result`.
"""

import hashlib
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import stoker
from stoker.cli.demo.pipeline import training_samples

_REPORT_EVERY = 0.1


class DemoJob(msgspec.Struct, frozen=True):
    """Arguments of a training run.

    Attributes:
        directory: directory of the image files.
        samples: number of samples in the epoch.
        step_seconds: duration of a batch on the simulated device.
        service: address of the dispatcher; "" loads the data in this process.
        max_seconds: end after this time, to measure a rate.
        checkpoint: file to which checkpoints are written, and from which a new trainer goes on;
            "" for none.
    """

    directory: str
    samples: int
    step_seconds: float
    service: str = ""
    max_seconds: float = 1e9
    checkpoint: str = ""


class Progress(msgspec.Struct, frozen=True, tag=True):
    """State of the epoch: images received, and seconds elapsed, waited for data and of CPU time.

    `ended` is set in the last one, which the `Result` contains.
    """

    images: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    cpu: float = 0.0
    ended: bool = False


class Result(msgspec.Struct, frozen=True, tag=True):
    """Result of the epoch; repeated and lost samples are counted by their numbers.

    `order` is a digest of the numbers in the order in which they arrived.
    """

    progress: Progress
    samples: int
    repeated: int
    lost: int
    order: str = ""


class Checkpoint(msgspec.Struct, frozen=True):
    """What a trainer needs to go on: the state of its iterator, and what it has counted."""

    state: dict[str, Any]
    progress: Progress
    times_seen: bytes
    order: bytes


class SimulatedDevice:
    """Simulate a GPU: each step takes a fixed time and computes nothing.

    As with a GPU, `step` returns when the device starts the step: the host prepares the next batch
    meanwhile and is at most one step ahead.
    """

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._free_from = time.perf_counter()
        self._waited = 0.0

    def step(self, images: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> None:
        """Run one batch after the one before it."""
        assert images.ndim == 4
        now = time.perf_counter()
        begin = max(now, self._free_from)
        self._waited += begin - self._free_from
        self._free_from = begin + self._step_seconds
        # The device computes the step before: the host waits for its end.
        time.sleep(begin - now)

    def finish(self) -> None:
        """Wait until the last step is finished."""
        now = time.perf_counter()
        self._waited += max(0.0, now - self._free_from)  # for the end of the epoch
        time.sleep(max(0.0, self._free_from - now))

    @property
    def waited(self) -> float:
        """Seconds in which the device was idle."""
        return self._waited


def train(job: DemoJob) -> Result:
    """Run the training loop."""
    files = sorted(str(path) for path in Path(job.directory).glob("*.jpg"))
    dataset = training_samples(files, job.samples)
    if job.service:
        dataset = dataset.distribute(job.service, processing_mode="deterministic_epoch")
    else:
        dataset = on_one_core(dataset)
    device = SimulatedDevice(job.step_seconds)
    file = Path(job.checkpoint) if job.checkpoint else None
    saved = None
    if file is not None and file.exists():
        saved = msgspec.json.decode(file.read_bytes(), type=Checkpoint)
    meter = _Meter(job.samples, device, saved)
    state = None if saved is None else saved.state
    with dataset.prefetch(2).iterator(state=state) as batches:
        for images, numbers in batches:
            device.step(images)
            if meter.count(numbers) and file is not None:
                _save(file, meter.checkpoint(batches.state_dict()))
            if meter.seconds > job.max_seconds:
                break
        device.finish()
    return meter.result()


def _save(file: Path, checkpoint: Checkpoint) -> None:
    # A trainer that is killed while it writes must leave the checkpoint before.
    unfinished = file.with_suffix(".part")
    unfinished.write_bytes(msgspec.json.encode(checkpoint))
    unfinished.replace(file)


class _Meter:
    """Counts samples, elapsed time and CPU time, on from those of a checkpoint."""

    def __init__(
        self, samples: int, device: SimulatedDevice, saved: Checkpoint | None = None
    ) -> None:
        self._times_seen = np.zeros(samples, np.uint8)
        self._order = b""
        self._before = Progress()
        if saved is not None:
            self._times_seen[:] = np.frombuffer(saved.times_seen, np.uint8)
            self._order, self._before = saved.order, saved.progress
        self._device = device
        self._images = 0
        self._began = time.perf_counter()
        self._cpu_before = time.process_time()
        self._reported = 0.0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def count(self, numbers: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> bool:
        """Count the samples of a batch; return whether that was reported."""
        self._images += len(numbers)
        # `seen[numbers] += 1` would count a number once that a batch has twice.
        np.add.at(self._times_seen, numbers, 1)
        # A digest of the last digest and the new numbers: a checkpoint can store it.
        self._order = hashlib.blake2b(self._order + numbers.tobytes(), digest_size=4).digest()
        if self.seconds - self._reported < _REPORT_EVERY:
            return False
        self._reported = self.seconds
        _send(self.progress())
        return True

    def checkpoint(self, state: dict[str, Any]) -> Checkpoint:
        return Checkpoint(state, self.progress(), self._times_seen.tobytes(), self._order)

    def progress(self, ended: bool = False) -> Progress:
        before = self._before
        return Progress(
            before.images + self._images,
            before.seconds + self.seconds,
            before.waited + self._device.waited,
            before.cpu + time.process_time() - self._cpu_before,
            ended,
        )

    def result(self) -> Result:
        seen = self._times_seen
        return Result(
            self.progress(ended=True),
            samples=len(seen),
            repeated=int(seen[seen > 1].sum() - (seen > 1).sum()),
            lost=int((seen == 0).sum()),
            order=self._order.hex(),
        )


def _send(message: Progress | Result) -> None:
    try:
        sys.stdout.write(msgspec.json.encode(message).decode() + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)  # the demo was killed


def pin_to_one_core() -> None:
    """Restrict this process to one core, on Linux."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def on_one_core(dataset: stoker.Dataset) -> stoker.Dataset:
    """Return the dataset with one thread where `pin_to_one_core` cannot restrict the process."""
    if sys.platform == "linux":
        return dataset
    return dataset.with_options(stoker.Options(threads=1))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    logging.disable(logging.WARNING)  # the demo prints what it kills itself
    pin_to_one_core()
    _send(train(msgspec.json.decode(sys.argv[1], type=DemoJob)))
