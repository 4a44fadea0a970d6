"""Pipelines that are slow at a known stage, in real time, and the sentences about them.

The margins are such that a pause of the whole process of 0.1 s changes no sentence; pipelines of
one thread are in `test_scripted_pipelines`.
"""

import time
from collections.abc import Callable, Iterator
from inspect import currentframe
from pathlib import Path
from typing import Any

import pytest

from stoker import Dataset
from tests.serving import eventually

pytestmark = pytest.mark.alone

SECONDS = 0.005
"""Each slow step sleeps for so long; everything else takes a small part of it."""

COUNT = 80
"""Slow steps of a pass."""

STEPS = 80
STEP_SECONDS = 0.02
"""Steps of a trainer of which a pause of 0.1 s in a read is less than a tenth."""

HERE = Path(__file__).relative_to(Path.cwd())


def slow(x: Any) -> Any:
    time.sleep(SECONDS)
    return x


def fast(x: Any) -> Any:
    return x


def line() -> int:
    """Return the line of the caller."""
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def read(dataset: Dataset, step: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Read an epoch with a training step, and return its statistics."""
    iterator = iter(dataset)
    for _ in iterator:
        step()
    return iterator.stats()


def test_a_slow_trainer_limits_training() -> None:
    stats = read(Dataset.range(STEPS).map(fast), lambda: time.sleep(STEP_SECONDS))
    assert stats["bottleneck"] == "trainer", stats["sentence"]
    assert stats["seconds"] > (STEPS - 1) * STEP_SECONDS


def test_a_slow_trainer_fills_the_buffer_of_a_prefetch() -> None:
    made, read_ahead, steps = [], 8, 0

    def make(x: int) -> int:
        made.append(x)
        return x

    def step() -> None:
        nonlocal steps
        steps += 1
        time.sleep(STEP_SECONDS)
        assert eventually(lambda: len(made) == min(steps + read_ahead, STEPS))

    stats = read(Dataset.range(STEPS).map(make).prefetch(read_ahead), step)
    assert stats["bottleneck"] == "trainer", stats["sentence"]
    assert stats["stages"][2]["occupancy"] > 0.5


def test_a_slow_map_is_named_with_its_line() -> None:
    dataset, at = Dataset.range(COUNT).map(slow), line()
    stats = read(dataset)
    assert stats["bottleneck"] == "pipeline"
    assert f"map(slow) at {HERE}:{at} (P50 " in stats["sentence"]
    assert "it waits rather than computes" in stats["sentence"]
    [source, mapping] = stats["stages"]
    assert (source["elements"], mapping["elements"]) == (COUNT, COUNT)
    assert mapping["p50"] >= 0.8 * SECONDS
    assert mapping["busy"] >= COUNT * SECONDS
    assert stats["waited"] >= mapping["busy"]


def test_a_map_that_computes_is_not_said_to_wait() -> None:
    stats = read(Dataset.range(100).map(lambda x: sum(range(300_000))))
    assert "map(lambda)" in stats["sentence"]
    assert "if it releases the GIL" in stats["sentence"]


def test_saturated_threads_of_a_map_are_named() -> None:
    stats = read(Dataset.range(4 * COUNT).map(slow, num_parallel_calls=2))
    assert "all 2 threads of map(slow)" in stats["sentence"]
    assert "a larger num_parallel_calls" in stats["sentence"]
    assert "call it for several elements at once" not in stats["sentence"]
    assert stats["stages"][1]["parallel"] == 2


def test_a_slow_stage_before_a_prefetch_is_named() -> None:
    stats = read(Dataset.range(COUNT).map(slow).map(fast).prefetch(8).map(fast))
    assert "in map(slow)" in stats["sentence"]
    prefetch = stats["stages"][3]
    assert prefetch["kind"] == "prefetch"
    assert prefetch["occupancy"] < 0.5


def test_a_slow_dataset_on_threads_of_an_interleave_is_named() -> None:
    dataset = Dataset.range(8).interleave(
        lambda _: Dataset.range(COUNT // 4).map(slow), cycle_length=2, num_parallel_calls=2
    )
    assert "in map(slow)" in read(dataset.map(fast))["sentence"]


def test_a_slow_generator_is_named() -> None:
    def numbers() -> Iterator[int]:
        for i in range(COUNT):
            time.sleep(SECONDS)
            yield i

    stats = read(Dataset.from_generator(numbers).map(fast, num_parallel_calls=2).batch(2))
    assert stats["bottleneck"] == "source"
    assert "in from_generator(numbers)" in stats["sentence"]


def test_slow_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.dataset.nodes import records

    open_reader = records._reader_of
    monkeypatch.setattr(records, "_reader_of", lambda *given: slow(open_reader(*given)))
    for i in range(COUNT):
        (tmp_path / f"{i}.txt").write_text("one\n")
    files = sorted(str(path) for path in tmp_path.iterdir())
    stats = read(Dataset.text_lines(files).map(fast))
    assert stats["bottleneck"] == "source", stats["sentence"]
    assert "read several files at once" in stats["sentence"]
