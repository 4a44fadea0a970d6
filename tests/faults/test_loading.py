"""Tasks whose worker cannot get the dataset from the dispatcher at first, or never."""

import threading

import pytest

import stoker
from stoker import errors
from stoker.service import distribute
from stoker.service import messages as m
from stoker.service.control import rpc
from tests.serving import Service, eventually, iterator_with_deadline, outcomes, read


class _Network:
    """Fails the first `failures` calls for a dataset."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
        self.failed = 0
        self._failures = failures
        self._lock = threading.Lock()
        self._call = rpc.call
        monkeypatch.setattr(rpc, "call", self._maybe_call)
        monkeypatch.setattr(
            "stoker.service.worker.pipelines.dataset_loader.CALL_AGAIN_SECONDS", 0.001
        )

    def _maybe_call(self, address: str, request: m.Request, *timeouts: float) -> m.Reply:
        if isinstance(request, m.GetDataset):
            with self._lock:
                if self.failed < self._failures:
                    self.failed += 1
                    raise errors.UnavailableError("the connection broke")
        return self._call(address, request, *timeouts)


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_broken_calls_for_the_dataset_cost_no_element(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = _Network(monkeypatch, failures=4)
    with Service(2) as service:
        dataset = stoker.Dataset.range(1_000).distribute(service.target, processing_mode=mode)
        with iterator_with_deadline(dataset) as iterator:
            found = outcomes(iterator)
    assert network.failed == 4
    assert sorted(found) == sorted([*range(1_000)] * (2 if mode == "parallel_epochs" else 1))


def test_broken_calls_do_not_fail_the_listing_of_files(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        (tmp_path / str(number)).touch()
    network = _Network(monkeypatch, failures=3)
    with Service(1) as service:
        paths = read(
            stoker.Dataset.list_files(f"{tmp_path}/*").distribute(
                service.target, processing_mode="distributed_epoch"
            )
        )
    assert network.failed == 3
    assert len(paths) == 10


def test_task_that_waits_for_its_dataset_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _Network(monkeypatch, failures=1 << 60)
    with Service(1) as service:
        dataset = stoker.Dataset.range(5).distribute(service.target)
        with dataset.iterator():
            assert eventually(lambda: network.failed > 2)
        assert eventually(lambda: not service.tasks)
        threads = [t.name for t in threading.enumerate() if t.name.startswith("stoker-task-")]
        assert eventually(lambda: not threads or not _alive(threads))


def _alive(names: list[str]) -> bool:
    return any(thread.name in names for thread in threading.enumerate())


def test_dataset_that_is_unknown_fails_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    call = rpc.call

    def answer(address: str, request: m.Request, *timeouts: float) -> m.Reply:
        if isinstance(request, m.GetDataset):
            raise errors.NotFoundError("Dataset id x not found")
        return call(address, request, *timeouts)

    monkeypatch.setattr(rpc, "call", answer)
    with Service(1) as service:
        dataset = stoker.Dataset.range(5).apply(distribute("parallel_epochs", service.target))
        with pytest.raises(errors.NotFoundError, match="Dataset id x not found"):
            read(dataset)
