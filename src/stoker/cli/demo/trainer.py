"""The trainer process of the demo: ``python -m stoker.cli.demo.trainer JOB``.

JOB is a `DemoJob` as JSON. JSON lines are written to stdout: a `Progress` every 0.1 s, then a
`Result`.
"""

import logging
import os
import signal
import sys
import time
from pathlib import Path

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
    """

    directory: str
    samples: int
    step_seconds: float
    service: str = ""
    max_seconds: float = 1e9


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
    """Result of the epoch; repeated and lost samples are counted by their numbers."""

    progress: Progress
    samples: int
    repeated: int
    lost: int


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
    dataset = dataset.distribute(job.service) if job.service else on_one_core(dataset)
    device = SimulatedDevice(job.step_seconds)
    meter = _Meter(job.samples, device)
    with dataset.prefetch(2).iterator() as batches:
        for images, numbers in batches:
            device.step(images)
            meter.count(numbers)
            if meter.seconds > job.max_seconds:
                break
        device.finish()
    return meter.result()


class _Meter:
    """Counts samples, elapsed time and CPU time."""

    def __init__(self, samples: int, device: SimulatedDevice) -> None:
        self._times_seen = np.zeros(samples, np.int64)
        self._device = device
        self._images = 0
        self._began = time.perf_counter()
        self._cpu_before = time.process_time()
        self._reported = 0.0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def count(self, numbers: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        self._images += len(numbers)
        # `seen[numbers] += 1` would count a number once that a batch has twice.
        np.add.at(self._times_seen, numbers, 1)
        if self.seconds - self._reported >= _REPORT_EVERY:
            self._reported = self.seconds
            _send(self.progress())

    def progress(self, ended: bool = False) -> Progress:
        cpu = time.process_time() - self._cpu_before
        return Progress(self._images, self.seconds, self._device.waited, cpu, ended)

    def result(self) -> Result:
        seen = self._times_seen
        return Result(
            self.progress(ended=True),
            samples=len(seen),
            repeated=int(np.maximum(seen - 1, 0).sum()),
            lost=int((seen == 0).sum()),
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
    logging.disable(logging.WARNING)  # lost elements are counted in the table
    pin_to_one_core()
    _send(train(msgspec.json.decode(sys.argv[1], type=DemoJob)))
