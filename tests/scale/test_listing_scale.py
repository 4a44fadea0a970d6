"""Lists of millions of files, in the dispatcher's logic alone."""

import gc
from collections.abc import Iterator

import pytest

from stoker.service import messages as m
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.scale.cluster import LISTED, Cluster, FileLister
from tests.scale.test_dispatcher_scale import LONGEST_CALL

FILES = 1_000_000


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _read_files() -> dict[str, float]:
    """List a million files, assign some, and drop the list; return the longest calls."""
    cluster = Cluster(LISTED)
    cluster.add_workers(2)
    [client] = cluster.add_clients(1, "job", ShardingPolicy.DYNAMIC)
    FileLister(cluster, FILES).run()
    cluster.work()
    [(peer, start), _] = list(cluster.running())
    assert start.mode == m.SplitTask(sources=[m.SplitSource(0, FILES)])
    for _ in range(200):
        cluster.say(peer, m.SplitRequest(start.task_id, 0, 0, want=128, least=128))
    for peer, start in cluster.running():
        cluster.say(peer, m.TaskProgress(start.task_id, exhausted=True, delivered=True))
    cluster.say(client, m.ClientClose())
    cluster.work()
    for _ in range(10):
        cluster.tick()
    assert not cluster.logic.has_work
    return cluster.longest


@pytest.mark.alone
def test_no_call_takes_long_with_a_million_files() -> None:
    runs = [_read_files() for _ in range(2)]
    longest = {name: min(run[name] for run in runs) for name in runs[0]}
    assert max(longest.values()) < LONGEST_CALL, longest
