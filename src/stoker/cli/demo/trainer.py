"""The trainer of the demo, a process of its own: ``python -m stoker.cli.demo.trainer JOB``.

JOB is a `Job` as JSON. It writes one `Progress` a tenth of a second to stdout, JSON lines, then a
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

from stoker.cli.demo.pipeline import training_samples

_REPORT_EVERY = 0.1


class Job(msgspec.Struct, frozen=True):
    """What to train on.

    Attributes:
        directory: of the image files.
        samples: how many make the epoch.
        step_seconds: how long the simulated device needs for a batch.
        service: the dispatcher's address; "" loads the data in this process.
        max_seconds: end early, for a rate.
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
    """The whole epoch; what was counted by the numbers that travel with the images."""

    progress: Progress
    samples: int
    repeated: int
    lost: int


class SimulatedDevice:
    """Stands for a GPU: each step occupies it for a fixed time and computes nothing.

    As with a GPU, `step` returns once the device has begun: the host prepares the next batch
    meanwhile, and is at most one step ahead.
    """

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._free_from = time.perf_counter()
        self._waited = 0.0

    def step(self, images: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> None:
        """Occupies the device with one batch, after the one before it."""
        assert images.ndim == 4
        now = time.perf_counter()
        begin = max(now, self._free_from)
        self._waited += begin - self._free_from
        self._free_from = begin + self._step_seconds
        time.sleep(begin - now)

    def finish(self) -> None:
        """Waits until the last step is done."""
        now = time.perf_counter()
        self._waited += max(0.0, now - self._free_from)  # for the end of the epoch
        time.sleep(max(0.0, self._free_from - now))

    @property
    def waited(self) -> float:
        """Seconds in which it had nothing to do."""
        return self._waited


def train(job: Job) -> Result:
    """The training loop."""
    files = sorted(str(path) for path in Path(job.directory).glob("*.jpg"))
    dataset = training_samples(files, job.samples)
    if job.service:
        dataset = dataset.distribute(job.service)
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
    """Counts what came, and the clock's and the processor's seconds."""

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
        np.add.at(self._times_seen, numbers, 1)
        if self.seconds - self._reported >= _REPORT_EVERY:
            self._reported = self.seconds
            _say(self.progress())

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


def _say(message: Progress | Result) -> None:
    try:
        sys.stdout.write(msgspec.json.encode(message).decode() + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)  # the demo was killed: nobody reads this any more


def pin_to_one_core() -> None:
    """Makes this a host of one core, where the system can do that."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    logging.disable(logging.WARNING)  # what is lost is counted, and stands in the table
    pin_to_one_core()
    _say(train(msgspec.json.decode(sys.argv[1], type=Job)))
