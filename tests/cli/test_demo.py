"""The parts of the demo, and a small run of all of it."""

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import stoker
from stoker.cli.demo import scenario
from stoker.cli.demo.display import LiveLine, Run, comparison, conclusions
from stoker.cli.demo.images import HEIGHT, WIDTH, make_images, photo_like
from stoker.cli.demo.machine import Cores, CpuMeter, Usage
from stoker.cli.demo.pipeline import BATCH, SIZE, load, training_samples
from stoker.cli.demo.scenario import DemoError, follow, plan
from stoker.cli.demo.trainer import DemoJob, Progress, Result, on_one_core

ALONE = Run(
    Result(Progress(images=1000, seconds=2.0, waited=1.0, cpu=1.8), 1000, 0, 0, "5eed"),
    Usage(1.9, 0.1),
)
SERVED = Run(
    Result(Progress(images=1000, seconds=1.0, waited=0.02, cpu=0.2), 1000, 0, 0, "5eed"),
    Usage(2.0, 0.2),
)
BUSY = Run(SERVED.result, Usage(2.0, 0.7))
TWO = Cores(installed=2, usable=2)


def rendered(*things) -> str:
    console = Console(file=io.StringIO(), width=120)
    for thing in things:
        console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def images(tmp_path):
    return make_images(tmp_path, 3, lambda _: None)


def test_image_is_a_jpeg_of_photograph_size():
    data = photo_like(7)
    assert 50_000 < len(data) < 120_000
    assert Image.open(io.BytesIO(data)).size == (WIDTH, HEIGHT)
    assert data == photo_like(7)
    assert data != photo_like(8)


def test_only_missing_images_are_made_again(tmp_path):
    paths = make_images(tmp_path, 3, lambda _: None)
    before = [Path(path).stat().st_ino for path in paths]
    Path(paths[1]).unlink()
    seen: list[int] = []
    assert make_images(tmp_path, 3, seen.append) == paths
    after = [Path(path).stat().st_ino for path in paths]
    assert after[0] == before[0]
    assert after[2] == before[2]
    assert seen == [2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000.jpg",
        "00001.jpg",
        "00002.jpg",
    ]


def test_sample_is_a_crop_determined_by_its_number(images):
    first, number = load(images, 5)
    assert number == 5
    assert first.shape == (SIZE, SIZE, 3)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, load(images, 5)[0])
    assert not np.array_equal(first, load(images, 8)[0])


def test_epoch_yields_each_number_once(images):
    numbers = [batch[1] for batch in training_samples(images, BATCH + 3)]
    assert sorted(np.concatenate(numbers)) == list(range(BATCH + 3))


def test_plan_sets_epoch_seconds_and_device_speed():
    job = plan("d", one_core_rate=640)
    assert job.samples / 640 == scenario.SECONDS_ALONE
    assert job.step_seconds == pytest.approx(BATCH / 640 / scenario.DEVICE_FACTOR)


def test_trainer_reports_progress_and_counts(images, tmp_path):
    seen: list[Progress] = []
    job = DemoJob(str(tmp_path), samples=10 * BATCH, step_seconds=0.11)
    result = follow(job, seen.append)
    assert (result.repeated, result.lost) == (0, 0)
    assert result.progress.images == 10 * BATCH
    busy = 10 * job.step_seconds
    assert result.progress.waited == pytest.approx(result.progress.seconds - busy, abs=0.1)
    assert len(seen) >= 9
    assert seen == sorted(seen, key=lambda progress: progress.images)


@pytest.mark.parametrize(("platform", "threads"), [("linux", None), ("darwin", 1)])
def test_one_core_is_one_thread_where_processes_cannot_be_pinned(
    monkeypatch, images, platform, threads
):
    monkeypatch.setattr(sys, "platform", platform)
    assert on_one_core(training_samples(images, 5)).options().threads == threads


def test_killed_trainer_goes_on_from_its_checkpoint(images, tmp_path):
    job = DemoJob(str(tmp_path), samples=10 * BATCH, step_seconds=0.11)
    whole = follow(job, lambda _: None)
    job = msgspec.structs.replace(job, checkpoint=str(tmp_path / "checkpoint.json"))

    def kill(seen: Progress) -> None:
        if seen.images >= 5 * BATCH:
            raise KeyError

    with pytest.raises(KeyError):
        follow(job, kill)
    seen: list[Progress] = []
    result = follow(job, seen.append)
    assert seen[0].images > 3 * BATCH
    assert (result.repeated, result.lost, result.order) == (0, 0, whole.order)
    assert result.progress.images == 10 * BATCH


def test_failing_trainer_is_one_line(tmp_path, capfd):
    with pytest.raises(DemoError, match="ended without a result"):
        follow(DemoJob(str(tmp_path), samples=5, step_seconds=0.0), lambda _: None)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_table_leads_with_the_cpu_time_of_the_trainer():
    shown = rendered(comparison(ALONE, SERVED, TWO))
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in shown.splitlines()
        if line.startswith("│")
    ]
    assert rows == [
        ["trainer's CPU per image, ms", "1.80", "0.20"],
        ["with the workers' CPU, ms", "1.90", "2.00"],
        ["images a second", "500", "1,000"],
        ["device waited for data", "50%", "2%"],
        ["images delivered", "1,000 of 1,000", "1,000 of 1,000"],
        ["repeated", "0", "0"],
        ["lost", "0", "0"],
        ["digest of their order", "5eed", "5eed"],
    ]


def test_rates_of_a_busy_machine_are_left_out():
    shown = rendered(comparison(ALONE, BUSY, TWO))
    assert "1.80" in shown
    assert "1,000 of 1,000" in shown
    assert "images a second" not in shown
    assert "waited" not in shown
    text = " ".join(conclusions(ALONE, BUSY, TWO))
    assert "Other programs used 0.7 of this machine's 2 cores" in text
    assert "times as fast" not in text


def test_conclusions_say_what_was_seen():
    text = " ".join(conclusions(ALONE, SERVED, TWO))
    assert "fell from 1.80 to 0.20 ms per image" in text
    assert "shared 2 cores here, where the device got its images 2.0 times as fast" in text
    assert "Other programs" not in text


def test_equal_orders_are_explained_only_if_they_are_equal():
    other = Run(msgspec.structs.replace(SERVED.result, order="bad"), SERVED.usage)
    assert any("in the order of" in line for line in conclusions(ALONE, SERVED, TWO))
    assert not any("in the order of" in line for line in conclusions(ALONE, other, TWO))


@pytest.mark.parametrize(
    ("installed", "usable", "others", "busy"),
    [
        (2, 2, 0.2, False),
        (2, 2, 0.4, True),
        (64, 4, 30.0, False),  # a container, and enough other cores
        (64, 4, 61.0, True),
    ],
)
def test_machine_is_busy_if_its_free_cores_are_too_few(installed, usable, others, busy):
    assert Cores(installed, usable).are_busy(others) == busy


def test_cpu_of_others_is_that_of_the_machine_without_the_demo(tmp_path):
    stat = tmp_path / "stat"
    ticks = os.sysconf("SC_CLK_TCK")
    stat.write_text(f"cpu {100 * ticks} 0 0 500 0 0 0 0 0 0\ncpu0 1\n")
    earliest = time.monotonic()
    meter = CpuMeter(9.0, stat)
    latest = time.monotonic()
    # User, nice, system, interrupts and stolen time count; idle time and waiting for I/O do not.
    busy = f"{104 * ticks} {ticks} {ticks} {{}} {ticks} {ticks} {2 * ticks} 5 5"
    stat.write_text(f"cpu {busy.format(f'{9_000 * ticks} {9_000 * ticks}')}\n")
    shortest = time.monotonic() - latest
    usage = meter.usage()
    longest = time.monotonic() - earliest
    assert usage.others * shortest <= 10 - usage.cpu <= usage.others * longest


def test_cpu_of_ended_child_processes_is_that_of_the_demo():
    meter = CpuMeter(0.0)
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert meter.usage().cpu >= 0.25


@pytest.mark.parametrize("content", [None, "cpu 0 0 0 0 0 0 0 0 0 0\n"])
def test_load_before_the_demo_replaces_missing_cpu_times(tmp_path, content):
    stat = tmp_path / "stat"
    if content is not None:
        stat.write_text(content)
    assert CpuMeter(1.5, stat).usage().others == 1.5


def test_live_line_is_plain_text_without_a_terminal():
    console = Console(file=io.StringIO(), force_terminal=False, width=100)
    with LiveLine(console, "title", 100) as line:
        for completed in range(100):
            line.update(completed)
        line.event("something happened")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().strip().splitlines() == ["title", "  something happened"]


def test_all_events_happen_even_if_reports_are_late(monkeypatch):
    happened: list[str] = []

    class Cluster:
        target = "localhost:1"

        def __init__(self, num_workers: int) -> None:
            happened.append(f"{num_workers} workers")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            happened.append("stopped")

        def kill_worker(self, index: int) -> None:
            happened.append(f"killed {index}")

        def add_worker(self) -> None:
            happened.append("joined")

    ended = Result(Progress(images=100, seconds=1.0, ended=True), 100, 0, 0)

    def follow(job, on_progress):
        happened.append(f"trainer on {job.service}")
        on_progress(Progress(images=10))
        on_progress(Progress(images=16))
        on_progress(ended.progress)
        return ended

    monkeypatch.setattr(stoker, "LocalCluster", Cluster)
    monkeypatch.setattr(scenario, "follow", follow)
    console = Console(file=io.StringIO(), force_terminal=False, width=100)
    job = DemoJob("d", samples=100, step_seconds=0.1)
    assert scenario.run_served(job, console, CpuMeter(0.0)).result == ended
    assert happened == [
        "2 workers",
        "trainer on localhost:1",
        "killed 0",
        "joined",
        "joined",
        "trainer on localhost:1",
        "stopped",
    ]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(120)
def test_whole_demo_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(scenario, "IMAGES", 30)
    monkeypatch.setattr(scenario, "SECONDS_ALONE", 2.0)
    monkeypatch.setattr(scenario, "SECONDS_MEASURING", 0.5)
    console = Console(file=io.StringIO(), force_terminal=False, width=120)
    scenario.run(tmp_path, console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for words in (
        "a worker was killed",
        "another worker joined",
        "another trainer goes on from its last checkpoint",
        "in the order of the trainer that loads its data itself",
        "trainer's CPU per image",
        "The trainer's own CPU time fell from",
    ):
        assert words in shown
    for word in ("repeated", "lost"):
        (row,) = [
            line for line in shown.splitlines() if line.startswith("│") and f" {word} " in line
        ]
        assert [cell.strip() for cell in row.strip("│").split("│")] == [word, "0", "0"]
