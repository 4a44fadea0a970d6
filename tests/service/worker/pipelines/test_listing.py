"""Lists of splits, in pages."""

import threading
from pathlib import Path

import msgspec
import pytest

import stoker
from stoker.dataset.tree.node import Node, number
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.service import messages as m
from stoker.service.worker.pipelines import listing
from stoker.service.worker.pipelines.listing import ListingThread, SplitLister
from tests.serving import eventually

ADDRESS = "host:1"


class _Host:
    """A worker with one dataset."""

    def __init__(self, dataset: stoker.Dataset) -> None:
        self.tree, self.options = encode_tree(dataset.node), dataset.options()
        self.loads = 0
        self.source = number(dataset.node)[dataset.node]

    def load(
        self, dataset_id: str, closed: threading.Event | None = None
    ) -> tuple[Node, stoker.Options]:
        self.loads += 1
        return decode_tree(self.tree), self.options


@pytest.fixture
def host(tmp_path: Path) -> _Host:
    for name in "abcde":
        (tmp_path / name).touch()
    return _Host(stoker.Dataset.list_files(str(tmp_path / "*"), shuffle=False))


def _lister(host: _Host) -> SplitLister:
    return SplitLister(host.load, ADDRESS, threading.Event())


def _ask(lister: SplitLister, source: int, start: int) -> m.SplitsPage:
    answer = lister.answer(m.ListSplits(7, "d", 1, (0,), source, start))
    assert isinstance(answer, m.SplitsPage)
    assert (answer.listing_id, answer.source, answer.start) == (7, source, start)
    return answer


def _names(page: m.SplitsPage) -> list[str]:
    return [Path(path).name for path in msgspec.msgpack.decode(page.values)]


def test_pages_of_one_list(host, monkeypatch):
    monkeypatch.setattr(listing, "PAGE_ENTRIES", 2)
    lister = _lister(host)
    pages = [_ask(lister, host.source, start) for start in (0, 2, 4)]
    assert [_names(page) for page in pages] == [["a", "b"], ["c", "d"], ["e"]]
    assert [page.total for page in pages] == [5, 5, 5]
    assert host.loads == 1


def test_pages_are_bounded_in_bytes(host, tmp_path, monkeypatch):
    name = len(msgspec.msgpack.encode(str(tmp_path / "a")))
    monkeypatch.setattr(listing, "PAGE_BYTES", 2 * name + 1)
    lister = _lister(host)
    assert _names(_ask(lister, host.source, 0)) == ["a", "b"]
    monkeypatch.setattr(listing, "PAGE_BYTES", 1)
    assert _names(_ask(lister, host.source, 2)) == ["c"]


def test_failure_to_list_splits_is_reported():
    host = _Host(stoker.Dataset.list_files("/no/such/*"))
    answer = _lister(host).answer(m.ListSplits(7, "d", 1, (0,), 0))
    assert isinstance(answer, m.ListingFailed)
    assert answer.error.code == "NotFoundError"


def test_source_that_does_not_exist_is_reported(host):
    answer = _lister(host).answer(m.ListSplits(7, "d", 1, (0,), 99))
    assert isinstance(answer, m.ListingFailed)
    assert answer.error.message == "the dataset has no source 99"


def test_closed_list_sends_nothing(host):
    began, go = threading.Event(), threading.Event()
    answers: list[object] = []
    load = host.load

    def slow(dataset_id: str, closed: threading.Event) -> tuple[Node, stoker.Options]:
        began.set()
        assert go.wait(10)
        return load(dataset_id, closed)

    host.load = slow
    made = ListingThread(host.load, ADDRESS, answers.append)
    made.ask(m.ListSplits(7, "d", 1, (0,), host.source))
    assert began.wait(10)
    made.close()
    go.set()
    assert eventually(lambda: not [x for x in threading.enumerate() if x.name == "stoker-list"])
    assert answers == []
