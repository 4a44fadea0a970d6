"""Times in which threads wait for room in a buffer, on a scripted clock."""

from typing import Any

import pytest

from stoker import Dataset, Iterator
from stoker.dataset.streams.measure import stopwatch as module
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.threads.readahead import ReadAhead
from stoker.dataset.threads.readmany import BufferedSource, ReadMany
from tests.dataset.streams.scripted import Script
from tests.serving import eventually


class Endless(Stream):
    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        return [0]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch, module)


def waiting_threads(script: Script, iterator: Iterator) -> float:
    """Return the number of threads of the last stage of this process that wait for room."""

    def put_wait() -> float:
        [found] = [x["put_wait"] for x in iterator.stats()["stages"] if x["number"] == 1]
        return float(found)

    before = put_wait()
    script.now += 1
    return put_wait() - before


def test_a_prefetch_whose_reader_pauses_waits_for_room(script: Script) -> None:
    iterator = iter(Dataset.range(1000).prefetch(4))
    next(iterator)
    assert eventually(lambda: waiting_threads(script, iterator) == 1)
    iterator.close()
    assert waiting_threads(script, iterator) == 0


@pytest.mark.parametrize("deterministic", [True, False])
def test_threads_of_an_interleave_wait_for_room(script: Script, *, deterministic: bool) -> None:
    dataset = Dataset.range(3).interleave(
        lambda _: Dataset.range(1000),
        cycle_length=3,
        num_parallel_calls=2,
        deterministic=deterministic,
    )
    iterator = iter(dataset)
    next(iterator)
    assert eventually(lambda: waiting_threads(script, iterator) == 2)
    iterator.close()
    assert waiting_threads(script, iterator) == 0


@pytest.mark.parametrize("state", ["waiting", "reading", "closed", "ended", "excluded"])
def test_a_source_without_need_for_room_does_not_wait_for_it(state: str) -> None:
    many = ReadMany(
        Endless(), lambda *_: Endless(), limit=1, most_open=1, max_elements=4, max_bytes=100
    )
    many.close()
    source = BufferedSource(many, 0, Endless(), max_elements=4, max_bytes=100)
    assert source.awaits_room()
    setattr(source, state, True)
    assert not source.awaits_room()


def test_a_paused_reader_does_not_wait_for_room(script: Script) -> None:
    def advance() -> float:
        before = work.put_wait.seconds()
        script.now += 1
        return work.put_wait.seconds() - before

    work, accepted = Work(threads=1), list[Any]()
    reader = ReadAhead(Endless(), lambda: 3 - len(accepted), accepted.extend, work)
    reader.start()
    assert eventually(lambda: advance() == 1)
    with reader.paused():
        assert advance() == 0
    assert eventually(lambda: advance() == 1)
    reader.close()
    assert advance() == 0
