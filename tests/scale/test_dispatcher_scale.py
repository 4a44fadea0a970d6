"""The dispatcher's logic with ten thousand workers: no call does much at once."""

import gc
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest

from stoker.service import messages as m
from stoker.service.dispatcher.iterations.assignment import TASKS_PER_CLIENT
from stoker.service.dispatcher.modes.mode import SHARED_BY
from stoker.service.dispatcher.sessions.sessions import MOST_HEARTBEATS, SLICE, heartbeat_ms
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.scale.cluster import Cluster

WORKERS, CLIENTS = 10_000, 10

LONGEST_CALL = 25e-3
"""CPU time of one call of the logic, in seconds; other sessions wait for it.

On an idle machine it is below 5 ms (benchmarks/bench_dispatcher.py); 60 to 120 ms before long work
was done in slices.
"""


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """Measure the calls alone: the collector runs in any of them."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _run_epoch(mode: ShardingPolicy) -> Cluster:
    cluster = Cluster(10**9)
    cluster.add_workers(WORKERS)
    clients = cluster.add_clients(CLIENTS, "job", mode)
    cluster.work()
    tasks = list(cluster.running())
    assert len(tasks) == CLIENTS * TASKS_PER_CLIENT
    if mode is ShardingPolicy.DYNAMIC:
        for peer, start in tasks:
            cluster.say(peer, m.SplitRequest(start.task_id, 0, 0, want=8))
    ended = 0
    while tasks:  # under OFF the other workers get a task when these have ended
        for delivered in (False, True):
            for peer, start in tasks:
                cluster.say(peer, m.TaskProgress(start.task_id, True, delivered))
        cluster.work()
        ended += len(tasks)
        tasks = list(cluster.running())[ended:]
    assert ended == (WORKERS if mode is ShardingPolicy.OFF else CLIENTS * TASKS_PER_CLIENT)
    assert cluster.most <= TASKS_PER_CLIENT
    assert cluster.computed == set(clients)
    for client in clients:
        cluster.say(client, m.ClientClose())
    cluster.work()
    cluster.tick()
    return cluster


@pytest.mark.alone
@pytest.mark.parametrize("mode", [ShardingPolicy.OFF, ShardingPolicy.DYNAMIC])
def test_no_call_takes_long(mode: ShardingPolicy) -> None:
    """The better of two runs counts: another process may disturb one."""
    runs = [_run_epoch(mode).longest for _ in range(2)]
    longest = {name: min(run[name] for run in runs) for name in runs[0]}
    assert max(longest.values()) < LONGEST_CALL, longest


def test_a_call_sends_at_most_a_slice() -> None:
    cluster = Cluster(10**9)
    cluster.add_workers(WORKERS)
    before = cluster.sent
    cluster.add_clients(10, "job")
    assert cluster.sent - before <= SLICE + 10 * 3
    assert cluster.logic.has_work
    cluster.work()
    assert cluster.sent - before >= 10 * TASKS_PER_CLIENT


@pytest.mark.alone
def test_a_thousand_clients_share_one_job() -> None:
    cluster = Cluster(10**9)
    cluster.add_workers(100)
    clients = cluster.add_clients(1_000, "job")
    cluster.work()
    assert all(len(cluster.tasks[client]) == 100 for client in clients)
    cluster.say(1, m.WorkerLeave())
    cluster.work()
    assert max(cluster.longest.values()) < LONGEST_CALL, cluster.longest


@pytest.mark.alone
def test_a_thousand_clients_share_a_thousand_workers() -> None:
    cluster = Cluster(10**9)
    cluster.add_workers(1_000)
    clients = cluster.add_clients(1_000, "job")
    cluster.work()
    assert all(len(cluster.tasks[client]) == TASKS_PER_CLIENT for client in clients)
    readers = Counter(task for client in clients for task in cluster.tasks[client])
    assert len(readers) == 1_000
    assert min(readers.values()) >= SHARED_BY
    assert max(cluster.longest.values()) < LONGEST_CALL, cluster.longest


def test_workers_that_come_later_are_all_read() -> None:
    """The clients leave workers that others read too."""
    cluster = Cluster(10**9)
    clients = cluster.add_clients(CLIENTS, "job")
    cluster.add_workers(CLIENTS * TASKS_PER_CLIENT)
    cluster.work()
    assert all(len(cluster.tasks[client]) == TASKS_PER_CLIENT for client in clients)
    assert len({task for client in clients for task in cluster.tasks[client]}) == 1280
    assert cluster.most <= TASKS_PER_CLIENT


def test_a_hundred_jobs_fit_into_a_gigabyte() -> None:
    """Measured with a tenth of them; benchmarks/bench_dispatcher.py runs all."""
    cluster = Cluster(10**9)
    cluster.add_workers(WORKERS)
    tracemalloc.start()
    clients = [x for k in range(10) for x in cluster.add_clients(CLIENTS, f"job {k}")]
    cluster.work()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(len(cluster.tasks[client]) for client in clients) == 12_800
    assert used < 10**8


@pytest.mark.parametrize(
    ("timeout_ms", "leases", "expected"),
    [(10_000, 1, 1_000), (60_000, 1, 5_000), (10_000, 2_500, 2_500), (10_000, 50_000, 3_333)],
)
def test_heartbeats_follow_the_number_of_leases(
    timeout_ms: int, leases: int, expected: int
) -> None:
    assert MOST_HEARTBEATS == 1000
    assert heartbeat_ms(timeout_ms, leases) == expected


def test_workers_hear_of_a_longer_interval() -> None:
    cluster = Cluster(10, worker_timeout_ms=10_000)
    [first, *_] = cluster.add_workers(3_000)
    cluster.say(first, m.Heartbeat())
    assert cluster.heartbeats[first] == 3_000
