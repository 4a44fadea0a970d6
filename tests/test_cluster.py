"""The life of a `LocalCluster`: as long as the objects of this process that refer to it."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial

import pytest

import stoker
from stoker.service.control.control_loop import control_loop
from tests.serving import eventually, read

NUMBERS = list(range(10))


def _cluster() -> tuple[stoker.LocalCluster, Callable[[], bool]]:
    """Return a cluster, and a function that returns whether its process has ended."""
    cluster = stoker.LocalCluster(1)
    [member] = cluster._servers.members
    process = member.process._process  # type: ignore[union-attr]
    return cluster, lambda: process.returncode is not None


def _in_child(work: Callable[[], object]) -> int:
    """Return the exit status of a forked child that works and ends as a script does."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


# ── collected ────────────────────────────────────────────────────────────────────────────────────
def test_a_cluster_bound_anew_ends_its_processes():
    cluster, has_ended = _cluster()
    cluster, other_has_ended = _cluster()
    assert eventually(has_ended)
    assert read(stoker.Dataset.range(10).distribute(cluster)) == NUMBERS
    assert not other_has_ended()
    cluster.stop()


def test_a_cluster_in_a_cycle_ends_when_garbage_is_collected():
    cluster, has_ended = _cluster()
    cycle = [cluster]
    cycle.append(cycle)  # type: ignore[arg-type]
    del cluster, cycle
    gc.collect()
    assert eventually(has_ended)


def test_a_cluster_is_collected_on_a_thread_that_holds_a_lock_of_stoker():
    cluster, has_ended = _cluster()
    with control_loop()._lock:  # which stopping takes
        del cluster
        assert not has_ended()
    assert eventually(has_ended)


def test_a_cluster_is_collected_on_the_control_loop():
    cluster, has_ended = _cluster()
    holder = [cluster]
    loop = control_loop().acquire()
    loop.call_soon_threadsafe(holder.clear)
    del cluster
    assert eventually(has_ended)
    control_loop().release()


def test_a_stopped_cluster_is_collected():
    cluster, has_ended = _cluster()
    cluster.stop()
    assert has_ended()
    del cluster


def test_a_script_that_leaves_its_cluster_exits_cleanly():
    code = """
    import stoker
    def main():
        dataset = stoker.Dataset.range(10).distribute(stoker.LocalCluster(1))
        print(sum(dataset))
    main()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (found.stdout, found.stderr, found.returncode) == ("45\n", "", 0)


# ── kept ─────────────────────────────────────────────────────────────────────────────────────────
def test_a_dataset_keeps_its_cluster():
    cluster, has_ended = _cluster()
    dataset = stoker.Dataset.range(10).distribute(cluster).batch(10)
    del cluster
    assert [read(dataset)[0].tolist() for _ in range(2)] == [NUMBERS] * 2
    assert not has_ended()
    del dataset
    assert eventually(has_ended)


def test_an_iterator_keeps_its_cluster():
    cluster, has_ended = _cluster()
    iterator = stoker.Dataset.range(10).distribute(cluster).iterator()
    del cluster
    assert read(iterator) == NUMBERS
    assert not has_ended()
    del iterator
    assert eventually(has_ended)


def test_a_registered_dataset_keeps_its_cluster_while_it_is_read():
    cluster, has_ended = _cluster()
    dataset_id = stoker.service.register_dataset(cluster, stoker.Dataset.range(10))
    dataset = stoker.service.from_dataset_id("distributed_epoch", cluster, dataset_id)
    del cluster
    assert read(dataset) == NUMBERS
    del dataset
    assert eventually(has_ended)


def test_a_pickled_copy_does_not_keep_the_cluster():
    cluster, has_ended = _cluster()
    copy = pickle.loads(pickle.dumps(stoker.Dataset.range(10).distribute(cluster)))
    assert read(copy) == NUMBERS
    del cluster
    assert eventually(has_ended)


# ── forked children ──────────────────────────────────────────────────────────────────────────────
def test_a_child_does_not_stop_the_cluster_of_its_parent():
    holder = [stoker.LocalCluster(1)]
    assert _in_child(holder.clear) == 0
    assert _in_child(lambda: holder[0].__exit__(None, None, None)) == 0
    assert read(stoker.Dataset.range(10).distribute(holder[0])) == NUMBERS
    holder[0].stop()


def test_a_child_does_not_keep_the_cluster_of_its_parent():
    cluster, has_ended = _cluster()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reader, 1)  # refers to the cluster meanwhile
        os._exit(0)
    try:
        del cluster
        assert eventually(has_ended)
    finally:
        os.write(writer, b"x")
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


# ── replaced ─────────────────────────────────────────────────────────────────────────────────────
def _kill_at_3(x: int) -> int:
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_a_worker_that_a_function_ends_is_replaced():
    with stoker.LocalCluster(1) as cluster:
        dataset = stoker.Dataset.range(10).map(_kill_at_3)
        iterator = dataset.distribute(cluster, processing_mode="parallel_epochs").iterator()
        found, errors = set[int](), 0
        while True:
            try:
                found.add(next(iterator))
            except StopIteration:
                break
            except stoker.errors.PoisonedElementError:
                errors += 1
        assert (found, errors) == (set(NUMBERS) - {3}, 1)
        assert len(cluster.workers) == 4
        assert cluster.num_workers() == 1


def test_a_worker_that_the_user_kills_is_not_replaced():
    with stoker.LocalCluster(2) as cluster:
        cluster.kill_worker(0)
        assert eventually(lambda: cluster.num_workers() == 1)
        members = cluster._servers.members
        members[0].process.wait()  # type: ignore[union-attr]
        members[0]._watcher.join()  # type: ignore[union-attr]
        assert len(cluster.workers) == 2


def test_a_cluster_that_replaces_a_worker_can_be_stopped():
    def is_dead(cluster: stoker.LocalCluster) -> bool:
        return cluster.num_workers() == 0

    for _ in range(3):
        with stoker.LocalCluster(1) as cluster:
            iterator = stoker.Dataset.range(10).map(_kill_at_3).distribute(cluster).iterator()
            next(iterator)
            assert eventually(partial(is_dead, cluster))
            iterator.close()


# ── shown ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("threads", [False, True])
def test_a_cluster_is_shown_with_address_workers_and_state(threads):
    with stoker.LocalCluster(1, threads=threads) as cluster:
        assert repr(cluster) == f"<LocalCluster {cluster.target} (alive, 1 worker)>"
        for shown in ("alive, 1 worker", cluster.target, cluster.workers[0]):
            assert shown in cluster._repr_html_()
    assert repr(cluster) == f"<LocalCluster {cluster.target} (stopped)>"
    assert "stopped" in cluster._repr_html_()
