"""A journal that has lost its end, or is an older copy, while trainers and workers live."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker.errors import UnavailableError
from tests.cli.commands import running
from tests.serving import eventually, iterator_with_deadline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

COUNT = 3_000
OUTDATED = (
    r"stoker: the journal in `work_dir` \S+ has lost its end or is an older copy: it ended at "
    r"position \d+ when this dispatcher started, and (worker|client|the supervisor) .* has "
    r"received position \d+, .*Restore the newer files; or stop all trainers and workers"
)
QUIET_SECONDS = 1.0
"""Time without a commit after which the messages of the last one have arrived."""


def _element(number: np.int64) -> np.ndarray:
    return np.full(1_000, number)


class Service:
    """A dispatcher with a journal and two workers, in processes of their own.

    Attributes:
        dispatcher: the last process of the dispatcher.
        journal: its `work_dir`.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.journal, self._whole = directory / "journal", directory / "whole"
        self.address = "localhost:0"
        self._stack = stack
        self.start()
        workers = ("--processes", "2", "--buffer-bytes", "64KiB")
        stack.enter_context(running("worker", "--dispatcher", self.address, *workers))

    def start(self) -> None:
        port = self.address.rpartition(":")[2]
        words = ("dispatcher", "--port", port, "--work-dir", str(self.journal))
        self.dispatcher = self._stack.enter_context(running(*words))
        serving = self.dispatcher.wait_for(r"dispatcher serves at grpc://(localhost:\d+)\n")
        self.address = serving[1]

    def kill(self) -> None:
        """Kill the dispatcher when its peers know all its records; keep a copy of its files."""
        log = self.journal / "journal.sqlite-wal"
        assert eventually(lambda: time.time() - log.stat().st_mtime > QUIET_SECONDS, 60)
        self.dispatcher.send(signal.SIGKILL)
        self.dispatcher.end()
        shutil.copytree(self.journal, self._whole)

    def restore(self) -> None:
        """Put the files back that the killed dispatcher had."""
        self.copy(self._whole)

    def copy(self, files: Path) -> None:
        """Replace the journal by a copy of other files."""
        shutil.rmtree(self.journal)
        shutil.copytree(files, self.journal)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with ExitStack() as stack:
        yield Service(tmp_path, stack)


def _dataset(service: Service) -> stoker.Dataset:
    return (
        stoker.Dataset.range(COUNT)
        .map(_element)
        .distribute(
            service.address, processing_mode="distributed_epoch", max_outstanding_requests=8
        )
    )


def _take(iterator: stoker.Iterator, count: int) -> list[int]:
    return [int(next(iterator)[0]) for _ in range(count)]


def _cut_log(service: Service, _: Path) -> None:
    log = service.journal / "journal.sqlite-wal"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size * 6 // 10)


def _change_last_commit(service: Service, _: Path) -> None:
    log = service.journal / "journal.sqlite-wal"
    data = bytearray(log.read_bytes())
    data[-100] ^= 1
    log.write_bytes(data)


def _restore_older(service: Service, older: Path) -> None:
    service.copy(older)


@pytest.mark.parametrize("damage", [_cut_log, _change_last_commit, _restore_older])
def test_an_outdated_journal_is_refused_and_nothing_repeated(
    service: Service, tmp_path: Path, damage: Callable[[Service, Path], None]
) -> None:
    with iterator_with_deadline(_dataset(service), 150) as iterator:
        got = _take(iterator, 300)
        shutil.copytree(service.journal, tmp_path / "older")
        got += _take(iterator, 700)
        service.kill()
        damage(service, tmp_path / "older")
        service.start()
        assert service.dispatcher.end() == 2
        service.dispatcher.wait_for(OUTDATED)
        assert "Traceback" not in service.dispatcher.output
        service.restore()
        service.start()
        got += [int(element[0]) for element in iterator]
    assert sorted(got) == list(range(COUNT))


def test_a_lost_log_is_an_empty_journal(service: Service) -> None:
    with iterator_with_deadline(_dataset(service), 100) as iterator:
        _take(iterator, 300)
        service.kill()
        (service.journal / "journal.sqlite-wal").unlink()
        service.start()
        with pytest.raises(UnavailableError, match="restarted with another journal"):
            _take(iterator, COUNT)


def test_without_living_peers_an_older_copy_is_served(tmp_path: Path) -> None:
    with ExitStack() as peers:
        service = Service(tmp_path, peers)
        shutil.copytree(service.journal, tmp_path / "older")
        with iterator_with_deadline(_dataset(service), 60) as iterator:
            _take(iterator, 300)
    service.copy(tmp_path / "older")
    with ExitStack() as stack:
        service._stack = stack
        service.start()
        workers = ("worker", "--dispatcher", service.address)
        stack.enter_context(running(*workers))
        with iterator_with_deadline(_dataset(service), 60) as iterator:
            assert sorted(_take(iterator, COUNT)) == list(range(COUNT))
