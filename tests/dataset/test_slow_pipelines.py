"""Pipelines that are slow at a known stage, and the sentences about them."""

import time
from collections.abc import Callable, Iterator
from inspect import currentframe
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset

SECONDS = 0.004
"""Each slow step sleeps for so long; everything else takes a small part of it."""

COUNT = 80

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
    dataset = Dataset.range(COUNT).map(fast)
    stats = read(dataset, lambda: time.sleep(SECONDS))
    assert stats["bottleneck"] == "trainer", stats["sentence"]
    assert stats["waited"] < 0.1 * stats["seconds"]
    assert stats["seconds"] > (COUNT - 1) * SECONDS


def test_a_slow_map_is_named_with_its_line() -> None:
    dataset, at = Dataset.range(COUNT).map(slow), line()
    stats = read(dataset)
    assert stats["bottleneck"] == "pipeline"
    assert f"map(slow) at {HERE}:{at} (P50 " in stats["sentence"]
    assert "it waits rather than computes" in stats["sentence"]
    assert stats["waited"] > 0.9 * stats["seconds"]
    [source, mapping] = stats["stages"]
    assert (source["elements"], mapping["elements"]) == (COUNT, COUNT)
    assert mapping["p50"] >= 0.8 * SECONDS
    assert mapping["busy"] >= COUNT * SECONDS


def test_a_map_that_computes_is_not_said_to_wait() -> None:
    stats = read(Dataset.range(100).map(lambda x: sum(range(300_000))))
    assert "map(lambda)" in stats["sentence"]
    assert "if it releases the GIL" in stats["sentence"]


def test_the_slow_one_of_several_maps_is_named() -> None:
    dataset = Dataset.range(COUNT).map(fast)
    dataset, at = dataset.map(slow), line()
    stats = read(dataset.map(fast).batch(4))
    assert f"map(slow) at {HERE}:{at} " in stats["sentence"]


def test_saturated_threads_of_a_map_are_named() -> None:
    stats = read(Dataset.range(4 * COUNT).map(slow, num_parallel_calls=2))
    assert "all 2 threads of map(slow)" in stats["sentence"]
    assert "a larger num_parallel_calls" in stats["sentence"]
    assert stats["stages"][1]["parallel"] == 2


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


def test_a_slow_filter_is_named() -> None:
    stats = read(Dataset.range(COUNT).filter(lambda x: slow(x) >= 0).map(fast))
    assert "in filter(lambda)" in stats["sentence"]


def test_a_slow_batch_is_named() -> None:
    image = np.zeros((512, 512, 8), np.uint8)
    stats = read(Dataset.range(8000).map(lambda i: image).batch(8))
    assert "in batch at" in stats["sentence"]


def test_a_slow_stage_before_a_prefetch_is_named() -> None:
    stats = read(Dataset.range(COUNT).map(slow).map(fast).prefetch(8).map(fast))
    assert "in map(slow)" in stats["sentence"]
    prefetch = stats["stages"][3]
    assert prefetch["kind"] == "prefetch"
    assert prefetch["occupancy"] < 0.5


def test_a_slow_trainer_fills_the_buffer_of_a_prefetch() -> None:
    stats = read(Dataset.range(COUNT).prefetch(8), lambda: time.sleep(SECONDS))
    assert stats["bottleneck"] == "trainer"
    prefetch = stats["stages"][1]
    assert prefetch["occupancy"] > 0.5
    assert prefetch["put_wait"] > 0.5 * stats["seconds"]


def test_the_slow_input_of_a_zip_is_named() -> None:
    stats = read(Dataset.zip(Dataset.range(COUNT).map(fast), Dataset.range(COUNT).map(slow)))
    assert "in map(slow)" in stats["sentence"]


@pytest.mark.parametrize("num_parallel_calls", [None, 2])
def test_a_slow_dataset_below_an_interleave_is_named(num_parallel_calls: int | None) -> None:
    dataset = Dataset.range(8).interleave(
        lambda _: Dataset.range(2 * COUNT // 8).map(slow),
        cycle_length=2,
        num_parallel_calls=num_parallel_calls,
    )
    stats = read(dataset.map(fast))
    assert "in map(slow)" in stats["sentence"]


def test_a_slow_cut_of_an_epoch_below_repeat_is_one_stage() -> None:
    stats = read(Dataset.range(COUNT // 4).map(slow).repeat(4))
    assert "in map(slow)" in stats["sentence"]
    assert [stage["elements"] for stage in stats["stages"]] == [COUNT, COUNT, COUNT]


def test_too_short_a_pass_names_nothing() -> None:
    stats = read(Dataset.range(3).map(fast))
    assert stats["bottleneck"] == "unknown"
    assert "Too little was read" in stats["sentence"]


def test_statistics_can_be_read_during_the_epoch() -> None:
    iterator = iter(Dataset.range(10 * COUNT).map(slow))
    for _ in range(COUNT):
        next(iterator)
    stats = iterator.stats()
    iterator.close()
    assert stats["stages"][1]["elements"] == COUNT
    assert "in map(slow)" in stats["sentence"]


def test_no_sentence_advises_what_is_there_already() -> None:
    stats = read(Dataset.range(COUNT).map(slow, num_parallel_calls=stoker.AUTOTUNE))
    assert "call it for several elements at once" not in stats["sentence"]
