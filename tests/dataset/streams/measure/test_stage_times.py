"""Times of stages, on a scripted clock."""

import pytest

from stoker import Dataset
from tests.dataset.streams.scripted import Script, script_of_stages


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return script_of_stages(monkeypatch)


def times(dataset: Dataset, steps: int | None = None) -> dict[str, float]:
    """Read a dataset and return the seconds in each kind of its stages."""
    iterator = iter(dataset)
    for count, _ in enumerate(iterator, 1):
        if count == steps:
            break
    found: dict[str, float] = {}
    for stage in iterator.stats()["stages"]:
        found[stage["kind"]] = found.get(stage["kind"], 0.0) + stage["busy"]
    return found


def test_fast_calls_below_slow_ones_are_not_the_readers(script: Script) -> None:
    found = times(Dataset.range(20_000).map(script.taking(20e-6)).filter(lambda x: x % 100 == 0))
    assert found["map"] == pytest.approx(0.4, rel=0.05)
    assert found["filter"] < 0.05


@pytest.mark.parametrize("seconds", [1e-6, 50e-6, 4e-3])
def test_functions_of_stages_take_their_own_time(script: Script, seconds: float) -> None:
    found = times(Dataset.range(50_000).filter(script.taking(seconds)).batch(10))
    assert found["filter"] == pytest.approx(50_000 * seconds, rel=0.15)
    assert found["batch"] == pytest.approx(0.0, abs=500 * seconds)


def test_all_epochs_of_a_repeat_are_measured(script: Script) -> None:
    found = times(Dataset.range(100).map(script.taking(4e-3)).repeat(2))
    assert found["map"] == pytest.approx(0.8)
    assert found["repeat"] == pytest.approx(0.0, abs=1e-6)


def test_slow_datasets_after_many_tiny_ones_are_measured(script: Script) -> None:
    wait = script.taking(2e-3)

    def dataset(i: int) -> Dataset:
        script.now += 25e-6
        return Dataset.range(1) if i < 100 else Dataset.range(20).filter(wait)

    found = times(Dataset.range(120).flat_map(dataset))
    assert found["filter"] == pytest.approx(0.8, rel=0.3)
    assert found["flat_map"] < 0.1


def test_many_small_datasets_take_their_own_time(script: Script) -> None:
    wait = script.taking(50e-6)
    found = times(Dataset.range(500).flat_map(lambda _: Dataset.range(4).filter(wait)).batch(64))
    assert found["filter"] == pytest.approx(0.1, rel=0.2)
    assert found["flat_map"] < 0.02


def test_a_pause_before_closing_takes_no_time_of_stages(script: Script) -> None:
    iterator = iter(Dataset.range(3000).filter(script.taking(1e-6)).repeat())
    for _ in range(3000):
        next(iterator)
    before = iterator.stats()["stages"]
    script.now += 2
    iterator.close()
    assert iterator.stats()["stages"] == before


def test_a_dataset_that_two_stages_read_counts_once(script: Script) -> None:
    source = Dataset.range(100).filter(script.taking(2e-3))
    found = times(Dataset.zip(source, source.map(lambda x: x)))
    assert found["filter"] == pytest.approx(0.4)
    assert found["zip"] == pytest.approx(0.0, abs=0.01)


def test_skipping_to_a_state_takes_no_time_of_stages(script: Script) -> None:
    dataset = Dataset.range(1, 301).filter(script.taking(2e-3))
    iterator = dataset.iterator()
    for _ in range(200):
        next(iterator)
    resumed = dataset.iterator(state=iterator.state_dict())
    assert len(list(resumed)) == 100
    [_, stage] = resumed.stats()["stages"]
    assert stage["busy"] == pytest.approx(0.2)
    assert stage["elements"] == 100
