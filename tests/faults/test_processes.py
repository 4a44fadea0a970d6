"""Processes that are killed, forked, interrupted, or exit with open iterators."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import stoker
from stoker import errors
from stoker.service import DispatchServer, WorkerConfig
from stoker.service.worker.processes.process import WorkerProcess
from stoker.service.worker.processes.supervisor import Supervisor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ENDS_AFTER_KILL_SECONDS = 15.0


def _slow(number: int) -> int:
    time.sleep(0.001)
    return number


def _read_and_kill(
    dataset: stoker.Dataset, kill: Callable[[], None], after: int
) -> tuple[list[int], float]:
    """Read a dataset and call `kill` after `after` elements.

    Returns:
        The elements, and the seconds from the kill to the end of the epoch.
    """
    got: list[int] = []
    killed = 0.0
    for element in dataset:
        got.append(element)
        if len(got) == after:
            kill()
            killed = time.monotonic()
    return got, time.monotonic() - killed


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_epoch_ends_after_an_unreported_worker_death(mode: str) -> None:
    # Only the lease detects it: no supervisor, and a dispatcher with default settings.
    with DispatchServer() as dispatcher:
        config = WorkerConfig(dispatcher_address=dispatcher.target)
        workers = [WorkerProcess(config), WorkerProcess(config)]
        try:
            for worker in workers:
                worker.wait_serving()
            dataset = stoker.Dataset.range(2_000).map(_slow)
            distributed = dataset.distribute(dispatcher.target, processing_mode=mode)
            got, seconds = _read_and_kill(distributed, workers[0].kill, after=200)
        finally:
            for worker in workers:
                worker.stop()
    assert seconds < ENDS_AFTER_KILL_SECONDS
    if mode == "distributed_epoch":
        assert len(set(got)) == len(got) < 2_000
    else:
        assert set(got) == set(range(2_000))
        assert len(got) < 4_000


def test_cluster_reports_a_killed_worker_and_lost_splits() -> None:
    with stoker.LocalCluster(2) as cluster:
        dataset = (
            stoker.Dataset.range(2_000)
            .map(_slow)
            .distribute(cluster, processing_mode="distributed_epoch")
        )
        with dataset.iterator() as iterator:
            got = [next(iterator) for _ in range(100)]
            cluster.kill_worker(0)
            got.extend(iterator)
            lost = iterator.stats()
        assert cluster.num_workers() == 1
    assert len(set(got)) == len(got)
    assert lost["tasks_lost"] == 1
    assert 2_000 - len(got) <= lost["splits_lost"]  # each split has one element here


def _hold_the_gil(number: int) -> int:
    sum(range(3 * 10**8))  # one C call of several seconds that holds the GIL
    return number


def test_function_holding_the_gil_keeps_the_lease() -> None:
    with DispatchServer(worker_timeout_ms=1_000) as dispatcher:
        supervisor = Supervisor(
            WorkerConfig(dispatcher_address=dispatcher.target, heartbeat_interval_ms=100)
        )
        supervisor.start()
        try:
            supervisor.wait_serving()
            dataset = stoker.Dataset.range(1).map(_hold_the_gil).distribute(dispatcher.target)
            began = time.monotonic()
            with dataset.iterator() as iterator:
                assert list(iterator) == [0]
                assert iterator.stats().get("tasks_lost", 0) == 0
            assert time.monotonic() - began > 2.0, "too short to mean anything"
        finally:
            supervisor.stop()


def test_joining_worker_takes_part_in_the_running_epoch(tmp_path: Path) -> None:
    gate = tmp_path / "open"

    def wait_for_gate(number: int) -> tuple[int, int]:
        while number >= 100 and not gate.exists():
            time.sleep(0.01)
        return _slow(number), os.getpid()

    with stoker.LocalCluster(1) as cluster:
        dataset = stoker.Dataset.range(3_000).map(wait_for_gate)
        with dataset.distribute(
            cluster, processing_mode="distributed_epoch"
        ).iterator() as iterator:
            got = [next(iterator)]
            cluster.add_worker()
            gate.touch()
            got.extend(iterator)
    assert sorted(x for x, _ in got) == list(range(3_000))
    assert len({pid for _, pid in got}) == 2


def test_epoch_continues_on_a_replacement_worker() -> None:
    with stoker.LocalCluster(1) as cluster:
        dataset = stoker.Dataset.range(2_000).map(_slow)
        distributed = dataset.distribute(cluster, processing_mode="parallel_epochs")
        with distributed.iterator() as iterator:
            got = [next(iterator)]
            cluster.kill_worker(0)
            cluster.add_worker()
            got.extend(iterator)
    assert got[-2_000:] == list(range(2_000))  # the new worker starts from the beginning


def test_forked_child_must_create_its_own_iterator() -> None:
    with stoker.LocalCluster(1) as cluster:
        dataset = stoker.Dataset.range(1_000).distribute(cluster)
        with dataset.iterator() as iterator:
            got = [next(iterator)]
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    status = 3
                    try:
                        status = _in_child(iterator, cluster.target)
                    finally:
                        os._exit(status)
                assert os.waitpid(child, 0)[1] == 0
            got.extend(iterator)
    assert sorted(got) == list(range(1_000))


def _in_child(iterator: stoker.Iterator, target: str) -> int:
    signal.alarm(30)
    try:
        next(iterator)
    except errors.FailedPreconditionError:
        iterator.close()  # does nothing to the parent's connections
        again = sorted(stoker.Dataset.range(10).distribute(target))
        return 0 if again == list(range(10)) else 2
    return 1


def test_dataset_copies_in_forked_children_share_the_job() -> None:
    with stoker.LocalCluster(1) as cluster:
        dataset = (
            stoker.Dataset.range(1_000)
            .map(_slow)
            .distribute(cluster, processing_mode="distributed_epoch")
        )
        reader, writer = os.pipe()
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                with os.fdopen(writer, "w") as pipe:
                    pipe.write(" ".join(map(str, dataset)) + "\n")
                os._exit(0)
            children.append(child)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            got = [int(word) for line in pipe for word in line.split()]
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert sorted(got) == list(range(1_000))


_OPEN_ITERATOR = """
    import sys, stoker
    cluster = stoker.LocalCluster(2, threads={threads})
    iterator = iter(stoker.Dataset.range(10**9).map(lambda x: x).distribute(cluster))
    next(iterator)
    print("reading", flush=True)
"""


def _run_script(text: str, threads: bool) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text).format(threads=threads)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_until_reading(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"


@pytest.mark.parametrize("threads", [False, True])
def test_program_with_open_iterators_exits_within_seconds(threads: bool) -> None:
    with _run_script(_OPEN_ITERATOR, threads) as process:
        _wait_until_reading(process)
        began = time.monotonic()
        _, stderr_text = process.communicate(timeout=60)
        assert time.monotonic() - began < 10
    assert process.returncode == 0, stderr_text
    assert "Traceback" not in stderr_text


@pytest.mark.parametrize("threads", [False, True])
def test_ctrl_c_ends_a_reading_program(threads: bool) -> None:
    with _run_script(_OPEN_ITERATOR + "    for _ in iterator: pass\n", threads) as process:
        _wait_until_reading(process)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, stderr_text = process.communicate(timeout=60)
        assert time.monotonic() - began < 10
    assert process.returncode == -signal.SIGINT, stderr_text
    assert stderr_text.rstrip().endswith("KeyboardInterrupt")


def test_ctrl_c_ends_a_program_waiting_for_a_worker() -> None:
    waiting = """
    import stoker
    cluster = stoker.LocalCluster(0, threads={threads})
    iterator = iter(stoker.Dataset.range(10).distribute(cluster))
    print("reading", flush=True)
    next(iterator)
    """
    with _run_script(waiting, True) as process:
        _wait_until_reading(process)
        process.send_signal(signal.SIGINT)
        _, stderr_text = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, stderr_text
