"""Pipelines that are slow at a known stage, on a scripted clock, and the sentences about them."""

from collections.abc import Callable
from typing import Any

import pytest

from stoker import Dataset
from stoker.dataset.nodes.batch import BatchStream
from tests.dataset.streams.scripted import Script, script_of_stages

SECONDS = 0.004
"""The time of each slow step; all others take none."""

COUNT = 80


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return script_of_stages(monkeypatch)


@pytest.fixture
def slow(script: Script) -> Callable[[Any], Any]:
    def slow(x: Any) -> Any:
        script.now += SECONDS
        return x

    return slow


def fast(x: Any) -> Any:
    return x


def read(dataset: Dataset, step: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Read an epoch with a training step, and return its statistics."""
    iterator = iter(dataset)
    for _ in iterator:
        step()
    return iterator.stats()


@pytest.mark.parametrize(("wait", "limit"), [(0.1, "trainer"), (0.12, "pipeline")])
def test_a_trainer_that_hardly_waits_limits_training(
    script: Script, wait: float, limit: str
) -> None:
    """It waits for 9 % or 11 % of the time."""
    dataset = Dataset.range(100).map(script.taking(wait))
    assert read(dataset, lambda: script.taking(1.0)(None))["bottleneck"] == limit


def test_the_slow_one_of_several_maps_is_named(slow: Callable[[Any], Any]) -> None:
    stats = read(Dataset.range(COUNT).map(fast).map(slow).map(fast).batch(4))
    assert stats["bottleneck"] == "pipeline"
    assert "100% of the pipeline's time was in map(slow) at " in stats["sentence"]
    assert stats["stages"][2]["p50"] == pytest.approx(SECONDS, rel=0.1)
    assert stats["waited"] == pytest.approx(COUNT * SECONDS)


def test_a_slow_filter_is_named(slow: Callable[[Any], Any]) -> None:
    stats = read(Dataset.range(COUNT).filter(lambda x: slow(x) >= 0).map(fast))
    assert "in filter(lambda)" in stats["sentence"]


def test_a_slow_batch_is_named(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    stack, take = BatchStream._stack, script.taking(SECONDS)
    monkeypatch.setattr(BatchStream, "_stack", lambda *given: take(stack(*given)))
    stats = read(Dataset.range(8 * COUNT).map(fast).batch(8))
    assert "in batch at" in stats["sentence"]


def test_the_slow_input_of_a_zip_is_named(slow: Callable[[Any], Any]) -> None:
    stats = read(Dataset.zip(Dataset.range(COUNT).map(fast), Dataset.range(COUNT).map(slow)))
    assert "in map(slow)" in stats["sentence"]


def test_a_slow_dataset_of_an_interleave_is_named(slow: Callable[[Any], Any]) -> None:
    dataset = Dataset.range(8).interleave(
        lambda _: Dataset.range(COUNT // 8).map(slow), cycle_length=2
    )
    assert "in map(slow)" in read(dataset.map(fast))["sentence"]


def test_epochs_of_a_slow_dataset_are_one_stage(slow: Callable[[Any], Any]) -> None:
    stats = read(Dataset.range(COUNT // 4).map(slow).repeat(4))
    assert "in map(slow)" in stats["sentence"]
    assert [stage["elements"] for stage in stats["stages"]] == [COUNT, COUNT, COUNT]


@pytest.mark.parametrize(("count", "limit"), [(4, "unknown"), (49, "unknown"), (50, "pipeline")])
def test_too_short_a_pass_names_nothing(slow: Callable[[Any], Any], count: int, limit: str) -> None:
    stats = read(Dataset.range(count).map(slow))
    assert stats["bottleneck"] == limit
    assert ("Too little was read" in stats["sentence"]) == (limit == "unknown")


def test_statistics_can_be_read_during_the_epoch(slow: Callable[[Any], Any]) -> None:
    iterator = iter(Dataset.range(10 * COUNT).map(slow))
    for _ in range(COUNT):
        next(iterator)
    stats = iterator.stats()
    iterator.close()
    assert stats["stages"][1]["elements"] == COUNT
    assert "in map(slow)" in stats["sentence"]
