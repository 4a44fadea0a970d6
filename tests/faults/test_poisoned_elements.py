"""Elements whose functions end the processes of workers, with real processes."""

import collections
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stoker
from stoker.errors import PoisonedElementError
from stoker.service import DispatchServer, WorkerConfig
from stoker.service.dispatcher.entities.poison import PoisonSearch
from stoker.service.worker.processes.supervisor import Supervisor
from tests.manual_clock import ManualClock
from tests.serving import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

COUNT = 200


class _Service:
    """A dispatcher and a supervisor that restarts its workers soon."""

    def __init__(self, dispatcher: DispatchServer, supervisor: Supervisor) -> None:
        self.target = dispatcher.target
        self.supervisor = supervisor
        self._dispatcher = dispatcher

    @property
    def search(self) -> PoisonSearch:
        """What the dispatcher knows about the only iteration; read only."""
        shell = self._dispatcher._shell
        assert shell is not None
        [iteration] = shell.logic.state.iterations.values()
        return iteration.poison


@contextlib.contextmanager
def serving(processes: int = 1) -> Iterator[_Service]:
    with DispatchServer() as dispatcher:
        config = WorkerConfig(dispatcher_address=dispatcher.target)
        clock = ManualClock()
        supervisor = Supervisor(config, processes, clock=clock)
        with clock.running():
            supervisor.start()
            try:
                supervisor.wait_serving()
                yield _Service(dispatcher, supervisor)
            finally:
                supervisor.stop()


def read(
    service: _Service, dataset: stoker.Dataset, mode: str = "parallel_epochs"
) -> tuple["collections.Counter[int]", list[PoisonedElementError], dict[str, int]]:
    """Return the elements of an epoch, its errors, and its statistics."""
    found: collections.Counter[int] = collections.Counter()
    poisoned: list[PoisonedElementError] = []
    with dataset.distribute(service.target, processing_mode=mode).iterator() as iterator:
        while True:
            try:
                found[next(iterator)] += 1
            except StopIteration:
                return found, poisoned, iterator.stats()
            except PoisonedElementError as error:
                poisoned.append(error)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _crash() -> None:
    ctypes.string_at(0)


def _exit() -> None:
    os._exit(1)


def _files(folder: Path) -> int:
    return len(list(folder.iterdir()))


def dying_at(*elements: int, die: Callable[[], None] = _kill) -> Callable[[int], int]:
    def function(x: int) -> int:
        if x in elements:
            die()
        return x

    return function


@pytest.mark.parametrize(("threads", "die"), [(None, _kill), (4, _crash), (4, _exit)])
def test_one_element_that_kills_is_one_error(threads: int | None, die: Callable[[], None]) -> None:
    function = dying_at(50, die=die)
    dataset = stoker.Dataset.range(COUNT).map(function, num_parallel_calls=threads)
    with serving() as service:
        found, [error], _ = read(service, dataset)
    assert found.keys() == set(range(COUNT)) - {50}
    assert (error.node, error.element) == ("map", 50)
    assert "test_poisoned_elements.py" in error.site
    assert "for element 50 of its input, which is skipped" in str(error)
    assert ("exit code 1" if die is _exit else "was killed by SIG") in str(error)


def test_two_elements_that_kill_are_two_errors() -> None:
    dataset = stoker.Dataset.range(COUNT).map(dying_at(50, 51), num_parallel_calls=4).batch(1)
    with serving() as service:
        found, poisoned, _ = read(service, dataset.unbatch())
    assert found.keys() == set(range(COUNT)) - {50, 51}
    assert {error.element for error in poisoned} == {50, 51}


def test_a_shuffled_element_that_kills_is_found() -> None:
    dataset = stoker.Dataset.range(COUNT).shuffle(COUNT).map(dying_at(50))
    with serving() as service:
        found, [_], _ = read(service, dataset)
    assert found.keys() == set(range(COUNT)) - {50}


def test_an_epoch_of_two_processes_ends() -> None:
    with serving(processes=2) as service:
        dataset = stoker.Dataset.range(COUNT).map(dying_at(50), num_parallel_calls=4)
        found, poisoned, _ = read(service, dataset)
    assert found.keys() == set(range(COUNT)) - {50}
    assert 1 <= len(poisoned) <= 2  # each worker yields the whole dataset


def test_ignore_errors_drops_and_counts_the_element() -> None:
    with serving() as service:
        dataset = stoker.Dataset.range(COUNT).map(dying_at(50)).ignore_errors()
        found, poisoned, stats = read(service, dataset)
    assert found.keys() == set(range(COUNT)) - {50}
    assert poisoned == []
    assert stats["errors_ignored"] == 1


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_transient_crash_accuses_no_element(tmp_path: Path, deaths: int) -> None:
    def function(x: int) -> int:
        if x == 50 and _files(tmp_path) < deaths:
            (tmp_path / str(os.getpid())).touch()
            _kill()
        return x

    with serving() as service:
        dataset = stoker.Dataset.range(COUNT).map(function, num_parallel_calls=4)
        found, poisoned, _ = read(service, dataset)
        assert service.search.poisoned == []
    assert _files(tmp_path) == deaths
    assert found.keys() == set(range(COUNT))
    assert poisoned == []


def test_workers_killed_at_random_places_accuse_no_element(tmp_path: Path) -> None:
    limit, waiting = tmp_path / "limit", tmp_path / "waiting"

    def wait_at_limit(x: int) -> int:
        while x >= int(limit.read_text()):
            waiting.touch()
            time.sleep(0.01)
        return x

    def set_limit(elements: int) -> None:
        (tmp_path / "new").write_text(str(elements))
        (tmp_path / "new").rename(limit)  # the function finds it at any time

    set_limit(90)
    with serving() as service:
        dataset = stoker.Dataset.range(COUNT).map(wait_at_limit, num_parallel_calls=4)
        distributed = dataset.distribute(service.target, processing_mode="parallel_epochs")
        with distributed.iterator() as iterator:
            for kills, following in enumerate((60, 40, 20, 0), start=1):
                assert next(iterator) < COUNT
                assert eventually(waiting.exists)
                [pid] = service.supervisor.pids
                set_limit(following)
                os.kill(pid, signal.SIGKILL)
                assert eventually(lambda: len(service.search.deaths) == kills)  # noqa: B023
                waiting.unlink()
            set_limit(COUNT)
            assert set(iterator) == set(range(COUNT))
        assert (len(service.search.deaths), service.search.poisoned) == (4, [])


def test_stopped_workers_accuse_no_element(tmp_path: Path) -> None:
    def wait(x: int) -> int:
        (tmp_path / str(os.getpid())).touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        return x

    with serving() as service:
        dataset = stoker.Dataset.range(COUNT).map(wait, num_parallel_calls=4)
        distributed = dataset.distribute(service.target, processing_mode="parallel_epochs")
        with distributed.iterator() as iterator:
            for workers in (1, 2):
                assert eventually(lambda: _files(tmp_path) == workers)  # noqa: B023
                [pid] = service.supervisor.pids
                os.kill(pid, signal.SIGTERM)
            (tmp_path / "go").touch()
            assert set(iterator) == set(range(COUNT))
        assert service.search == PoisonSearch()


def test_begun_splits_that_kill_are_lost_without_a_search() -> None:
    with serving() as service:
        dataset = stoker.Dataset.range(COUNT).map(dying_at(50))
        found, poisoned, stats = read(service, dataset, "distributed_epoch")
        assert service.search == PoisonSearch()
    assert found[50] == 0
    assert max(found.values()) == 1
    assert poisoned == []
    assert stats["tasks_lost"] == 1
