"""Worker processes that are frozen: they lose their lease, and start over when they go on."""

import ctypes
import functools
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import stoker
from stoker.service import DispatchServer, WorkerConfig
from stoker.service.worker.processes.supervisor import Supervisor
from tests.serving import eventually, iterator_with_deadline

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]

LEASE = 1.0
DEADLINE = 30.0


def _slow(number: int) -> int:
    time.sleep(0.001)
    return number


@contextmanager
def _supervising(processes: int) -> Iterator[tuple[DispatchServer, Supervisor]]:
    with DispatchServer(worker_timeout_ms=int(LEASE * 1000)) as dispatcher:
        supervisor = Supervisor(WorkerConfig(dispatcher_address=dispatcher.target), processes)
        supervisor.start()
        try:
            supervisor.wait_serving()
            yield dispatcher, supervisor
        finally:
            for pid in supervisor.pids:
                os.kill(pid, signal.SIGCONT)  # a stopped process would ignore SIGTERM
            supervisor.stop()


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_epoch_ends_without_a_stopped_worker(mode: str) -> None:
    with _supervising(2) as (dispatcher, supervisor):
        dataset = stoker.Dataset.range(4_000).map(_slow)
        distributed = dataset.distribute(dispatcher.target, processing_mode=mode)
        with iterator_with_deadline(distributed, DEADLINE) as iterator:
            got = [next(iterator) for _ in range(200)]
            before = set(dispatcher._shell.logic.state.workers)
            frozen = supervisor.pids[0]
            os.kill(frozen, signal.SIGSTOP)
            stopped_at = time.monotonic()
            assert eventually(lambda: dispatcher.num_workers() == 1)
            assert time.monotonic() - stopped_at < 3 * LEASE
            os.kill(frozen, signal.SIGCONT)
            # It had lost its lease, so it is another worker now, without its old tasks.
            assert eventually(lambda: dispatcher.num_workers() == 2)
            assert len(set(dispatcher._shell.logic.state.workers) - before) == 1
            got.extend(iterator)
            lost = iterator.stats()
        assert supervisor.pids[0] == frozen
        if mode == "distributed_epoch":
            assert len(set(got)) == len(got)
            assert lost["tasks_lost"] == 1
            assert 4_000 - len(got) <= lost["splits_lost"]
        else:
            assert set(got) == set(range(4_000))
        assert sorted(stoker.Dataset.range(9).distribute(dispatcher.target)) == list(range(9))


def test_epoch_ends_while_a_worker_stays_stopped() -> None:
    with _supervising(2) as (dispatcher, supervisor):
        dataset = (
            stoker.Dataset.range(2_000)
            .map(_slow)
            .distribute(dispatcher.target, processing_mode="distributed_epoch")
        )
        with iterator_with_deadline(dataset, DEADLINE) as iterator:
            got = [next(iterator) for _ in range(100)]
            os.kill(supervisor.pids[0], signal.SIGSTOP)
            got.extend(iterator)
            assert iterator.stats()["tasks_lost"] == 1
        assert len(set(got)) == len(got)


def _block_with_the_gil(number: int) -> int:
    if number == 0:
        ctypes.PyDLL(None).usleep(30_000_000)  # neither uses CPU time nor releases the GIL
    return _slow(number)


def test_worker_blocked_with_the_gil_loses_its_lease() -> None:
    with _supervising(2) as (dispatcher, _):
        dataset = stoker.Dataset.range(2_000).map(_block_with_the_gil)
        with iterator_with_deadline(
            dataset.distribute(dispatcher.target, processing_mode="distributed_epoch"), DEADLINE
        ) as iterator:
            began = time.monotonic()
            got = list(iterator)
            assert time.monotonic() - began < 25, "it waited for the blocked worker"
            assert iterator.stats()["tasks_lost"] == 1
        assert 0 not in got
        assert len(set(got)) == len(got)


def test_stopped_process_of_a_local_cluster_loses_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = functools.partial(DispatchServer, worker_timeout_ms=int(LEASE * 1000))
    monkeypatch.setattr("stoker.cluster.DispatchServer", short)
    with stoker.LocalCluster(2) as cluster:
        pid = cluster._servers.members[0].process.pid  # type: ignore[union-attr]
        dataset = (
            stoker.Dataset.range(2_000)
            .map(_slow)
            .distribute(cluster, processing_mode="distributed_epoch")
        )
        with iterator_with_deadline(dataset, DEADLINE) as iterator:
            got = [next(iterator) for _ in range(100)]
            os.kill(pid, signal.SIGSTOP)
            try:
                got.extend(iterator)
                assert cluster.num_workers() == 1
            finally:
                os.kill(pid, signal.SIGCONT)
        assert len(set(got)) == len(got)
        assert eventually(lambda: cluster.num_workers() == 2)


def test_idle_worker_keeps_its_lease() -> None:
    with _supervising(1) as (dispatcher, _):
        [worker_id] = dispatcher._shell.logic.state.workers
        end = time.monotonic() + 4 * LEASE
        assert not eventually(
            lambda: list(dispatcher._shell.logic.state.workers) != [worker_id],
            end - time.monotonic(),
        )
