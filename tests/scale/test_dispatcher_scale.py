"""The dispatcher's logic with ten thousand workers: no call does much at once."""

import gc
from collections.abc import Iterator

import pytest

from stoker.service import messages as m
from stoker.service.config import ShardingPolicy
from stoker.service.dispatcher.sessions import MOST_HEARTBEATS, SLICE, heartbeat_ms
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
    assert len(tasks) == WORKERS
    assert all(len(cluster.tasks[client]) == WORKERS for client in clients)
    if mode is ShardingPolicy.DYNAMIC:
        for peer, start in tasks:
            cluster.say(peer, m.SplitRequest(start.task_id, 0, 0, want=8))
    for delivered in (False, True):
        for peer, start in tasks:
            cluster.say(peer, m.TaskProgress(start.task_id, True, delivered))
    cluster.work()
    assert cluster.computed == set(clients)
    for client in clients:
        cluster.say(client, m.ClientClose())
    cluster.work()
    cluster.tick()
    return cluster


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
    cluster.add_clients(1, "job")
    assert cluster.sent - before <= SLICE + 10
    assert cluster.logic.has_work
    cluster.work()
    assert cluster.sent - before >= WORKERS


def test_a_thousand_clients_share_one_job() -> None:
    cluster = Cluster(10**9)
    cluster.add_workers(100)
    clients = cluster.add_clients(1_000, "job")
    cluster.work()
    assert all(len(cluster.tasks[client]) == 100 for client in clients)
    cluster.say(1, m.WorkerLeave())
    cluster.work()
    assert max(cluster.longest.values()) < LONGEST_CALL, cluster.longest


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
