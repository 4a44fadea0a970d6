"""Lists of many files, read from real servers."""

import threading
from typing import Any

import pytest

import stoker
from stoker.service.worker.pipelines import listing
from tests.serving import Service, eventually, read

FILES = 200_000


@pytest.fixture
def names(monkeypatch):
    """Make `list_files` find many files that are not there."""
    found = [f"/data/train-{k:06d}-of-{FILES:06d}.tfrecord" for k in range(FILES)]
    monkeypatch.setattr("stoker.dataset.nodes.files.list_paths", lambda pattern: found)
    return found


@pytest.mark.slow
def test_200_000_file_names_are_read_once_each(names):
    with Service(2) as service:
        dataset = stoker.Dataset.list_files("/data/*", shuffle=False).batch(1000)
        batches = read(
            dataset.distribute(service.target, processing_mode="distributed_epoch"), deadline=50
        )
    assert sorted(name for batch in batches for name in batch) == names


def test_list_of_a_worker_that_is_lost_starts_anew(monkeypatch):
    names = [f"/data/{k}" for k in range(100)]
    monkeypatch.setattr("stoker.dataset.nodes.files.list_paths", lambda pattern: names)
    monkeypatch.setattr(listing, "PAGE_ENTRIES", 10)
    pages: list[tuple[str, int]] = []
    stuck = threading.Event()
    answer = listing.SplitLister.answer

    def first_worker_stops_to_answer(self: Any, request: Any) -> Any:
        pages.append((self._worker, request.start))
        if request.start == 50 and len({address for address, _ in pages}) == 1:
            stuck.set()
            self._closed.wait(30)
        return answer(self, request)

    monkeypatch.setattr(listing.SplitLister, "answer", first_worker_stops_to_answer)
    with Service(2) as service:
        dataset = stoker.Dataset.list_files("/data/*").distribute(
            service.target, processing_mode="distributed_epoch"
        )
        found: list[Any] = []
        reading = threading.Thread(target=lambda: found.extend(dataset))
        reading.start()
        assert stuck.wait(10)
        [lister] = [w for w in service.workers if w.address == pages[0][0]]
        lister.stop()
        reading.join(30)
        assert sorted(found) == sorted(names)
        state = service.state.iterations.values()
        assert eventually(lambda: not any(each.values for each in state))
    assert [start for address, start in pages if address != pages[0][0]] == list(range(0, 100, 10))
