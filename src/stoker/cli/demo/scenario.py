"""The demo: images, a calibration, a run without and a run with stoker."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec
from rich.console import Console

import stoker
from stoker.cli.demo.display import LiveLine, Run, comparison, conclusions, progress_text, rate
from stoker.cli.demo.images import make_images
from stoker.cli.demo.machine import Cores, CpuMeter
from stoker.cli.demo.pipeline import BATCH
from stoker.cli.demo.trainer import DemoJob, Progress, Result
from stoker.errors import StokerError

IMAGES = 2_000
SECONDS_ALONE = 15.0
"""Approximate duration of the first run, which determines the length of the epoch."""

SECONDS_MEASURING = 3.0
"""Duration of the calibration of one core."""

WARMING = 1 / 3
"""Share of the calibration that is not counted, while the pipeline warms up."""

DEVICE_FACTOR = 1.5
"""Speed of the simulated device, relative to what one core can supply."""

# -P: a folder "stoker" in the current directory is not imported in place of the package.
_TRAINER = (sys.executable, "-P", "-m", "stoker.cli.demo.trainer")


class DemoError(StokerError):
    """The demo failed; the message is one line."""


def run(directory: Path, console: Console) -> None:
    """Run the demo with images in `directory`.

    Raises:
        DemoError: if a trainer failed.
    """
    load = os.getloadavg()[0]
    images = directory / "images"
    title = f"Making {IMAGES:,} photo-like JPEG files in {images}, once"
    with LiveLine(console, title, IMAGES) as line:
        make_images(images, IMAGES, line.update)
    job = plan(str(images), _calibrate(str(images), console))
    console.print(
        f"The (simulated) device takes {BATCH} images in {job.step_seconds * 1000:.0f} ms; "
        f"an epoch is {job.samples:,} images."
    )
    alone = run_alone(job, console, CpuMeter(load))
    served = run_served(job, console, CpuMeter(load))
    console.print()
    cores = Cores.of_this_machine()
    console.print(comparison(alone, served, cores))
    for sentence in conclusions(alone, served, cores):
        console.print(sentence)


def plan(directory: str, one_core_rate: float) -> DemoJob:
    """Return a job of `SECONDS_ALONE` for one core, and a device faster than one core."""
    return DemoJob(
        directory,
        samples=max(BATCH, round(one_core_rate * SECONDS_ALONE / BATCH) * BATCH),
        step_seconds=BATCH / (one_core_rate * DEVICE_FACTOR),
    )


def _calibrate(directory: str, console: Console) -> float:
    """Return the images per second of CPU time that one core prepares.

    CPU time is the same on a machine that is busy with other programs.
    """
    job = DemoJob(directory, samples=1_000_000, step_seconds=0.0, max_seconds=SECONDS_MEASURING)
    line = LiveLine(console, "Measuring what one core can prepare", 3)
    warm = Progress()

    def on_progress(seen: Progress) -> None:
        nonlocal warm
        if seen.seconds < WARMING * SECONDS_MEASURING:
            warm = seen
        line.update(int(seen.seconds), f"{rate(seen):,.0f} images/s")

    with line:
        end = follow(job, on_progress).progress
    if end.images == warm.images:  # too slow for a warm-up
        warm = Progress()
    return (end.images - warm.images) / max(end.cpu - warm.cpu, 1e-9)


def run_alone(job: DemoJob, console: Console, meter: CpuMeter) -> Run:
    """Run a trainer that prepares its data itself, on one core."""
    title = "1. The trainer loads its data itself, on one core"
    with LiveLine(console, title, job.samples) as line:
        result = follow(job, lambda seen: line.update(seen.images, progress_text(seen)))
    return Run(result, meter.usage())


def run_served(job: DemoJob, console: Console, meter: CpuMeter) -> Run:
    """Run a trainer on two workers, of which one is killed; then the trainer is killed.

    Another trainer goes on from the checkpoint of the killed one, with three workers.
    """
    line = LiveLine(
        console, "2. The same trainer reads from a dispatcher and 2 workers", job.samples
    )
    with (
        tempfile.TemporaryDirectory(prefix="stoker-demo-") as folder,
        stoker.LocalCluster(num_workers=2) as cluster,
        line,
    ):
        job = msgspec.structs.replace(
            job, service=cluster.target, checkpoint=f"{folder}/checkpoint.json"
        )

        def kill_trainer() -> None:
            cluster.add_worker()
            raise _TrainerKilled

        events: list[tuple[float, Callable[[], object], str]] = [
            (0.15, lambda: cluster.kill_worker(0), "a worker was killed (kill -9)"),
            (0.40, cluster.add_worker, "another worker joined"),
            (0.60, kill_trainer, "the trainer is killed (kill -9); a third worker joins"),
        ]

        def on_progress(seen: Progress) -> None:
            line.update(seen.images, progress_text(seen))
            while events and (seen.ended or seen.images >= events[0][0] * job.samples):
                _, action, text = events.pop(0)
                line.event(f"at {seen.images:,} images: {text}")
                action()

        try:
            result = follow(job, on_progress)
        except _TrainerKilled:
            line.event("another trainer goes on from its last checkpoint, with 3 workers")
            result = follow(job, on_progress)
    return Run(result, meter.usage())  # now that the workers have ended


class _TrainerKilled(Exception):  # noqa: N818 - the demo has killed it, as planned
    """The trainer was killed on purpose."""


def follow(job: DemoJob, on_progress: Callable[[Progress], None]) -> Result:
    """Run a trainer to its end; kill the trainer if `on_progress` raises.

    Raises:
        DemoError: if it ended without a result.
    """
    with _trainer(job) as lines:
        for line in lines:
            message = msgspec.json.decode(line, type=Progress | Result)
            if isinstance(message, Result):
                on_progress(message.progress)
                return message
            on_progress(message)
    raise DemoError("the trainer ended without a result; its output is above")


@contextmanager
def _trainer(job: DemoJob) -> Iterator[IO[bytes]]:
    command = [*_TRAINER, msgspec.json.encode(job).decode()]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        except BaseException:
            # At the end of the block Popen would wait for the trainer, also after Ctrl-C.
            process.kill()
            raise
