"""Deterministic epochs of real processes that are killed, frozen and restarted."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import PoisonedElementError, UnavailableError
from stoker.service import DispatchServer, WorkerConfig
from stoker.service.worker.processes.supervisor import Supervisor
from tests.serving import Service, eventually, iterator_with_deadline, outcomes, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MODE = "deterministic_epoch"
COUNT = 2_000


def _slow(number: int) -> int:
    time.sleep(0.001)
    return number


def slow_dataset() -> stoker.Dataset:
    return stoker.Dataset.range(COUNT).shuffle(COUNT, seed=1).map(_slow)


EXPECTED = list(stoker.Dataset.range(COUNT).shuffle(COUNT, seed=1).iterator(epoch=0))


def longest_pause(iterator: stoker.Iterator) -> tuple[list[int], float]:
    """Read to the end; return the elements and the longest time between two."""
    found, pause, last = [], 0.0, time.monotonic()
    for element in iterator:
        now = time.monotonic()
        pause, last = max(pause, now - last), now
        found.append(element)
    return found, pause


def test_killed_workers_lose_nothing() -> None:
    with stoker.LocalCluster(3) as cluster:
        dataset = slow_dataset().distribute(cluster, processing_mode=MODE, on_loss="raise")
        with iterator_with_deadline(dataset.iterator(epoch=0)) as iterator:
            found = [next(iterator) for _ in range(200)]
            cluster.kill_worker(0)
            found += [next(iterator) for _ in range(200)]
            cluster.kill_worker(1)
            cluster.add_worker()
            rest, pause = longest_pause(iterator)
            stats = iterator.stats()
    assert [*found, *rest] == EXPECTED
    assert pause < 5.0
    assert not stats["elements_lost"]
    assert not stats["splits_lost"]


def test_the_last_worker_may_be_replaced() -> None:
    with stoker.LocalCluster(1) as cluster:
        dataset = slow_dataset().distribute(cluster, processing_mode=MODE)
        with iterator_with_deadline(dataset.iterator(epoch=0)) as iterator:
            found = [next(iterator) for _ in range(300)]
            cluster.kill_worker(0)
            cluster.add_worker()
            found += iterator
    assert found == EXPECTED


@pytest.mark.skipif(sys.platform != "linux", reason="SIGSTOP leaves the kernel's sockets open")
def test_a_frozen_worker_delays_little() -> None:
    with DispatchServer() as dispatcher:
        supervisor = Supervisor(WorkerConfig(dispatcher_address=dispatcher.target), 2)
        supervisor.start()
        try:
            supervisor.wait_serving()
            dataset = slow_dataset().distribute(dispatcher.target, processing_mode=MODE)
            with iterator_with_deadline(dataset.iterator(epoch=0)) as iterator:
                found = [next(iterator) for _ in range(300)]
                os.kill(supervisor.pids[0], signal.SIGSTOP)
                rest, pause = longest_pause(iterator)
            assert [*found, *rest] == EXPECTED
            assert pause < 8.0  # before its lease of 10 s ends
        finally:
            for pid in supervisor.pids:
                os.kill(pid, signal.SIGCONT)
            supervisor.stop()


@pytest.mark.parametrize("journaled", [False, True])
def test_a_dispatcher_that_was_restarted_loses_nothing(tmp_path: Path, journaled: bool) -> None:
    fields: dict[str, Any] = {}
    if journaled:
        fields = {"fault_tolerant_mode": True, "work_dir": str(tmp_path)}
    with Service(2, **fields) as service:
        dataset = slow_dataset().distribute(service.target, processing_mode=MODE)
        with iterator_with_deadline(dataset.iterator(epoch=0)) as iterator:
            found = []
            for _ in range(3):
                found += [next(iterator) for _ in range(150)]
                service.restart_dispatcher(**fields)
            found += iterator
    assert found == EXPECTED


def test_a_drained_worker_loses_nothing() -> None:
    with Service(2) as service:
        dataset = slow_dataset().distribute(service.target, processing_mode=MODE)
        with iterator_with_deadline(dataset.iterator(epoch=0)) as iterator:
            found = [next(iterator) for _ in range(200)]
            service.workers[0].stop()
            found += iterator
    assert found == EXPECTED


TRAINER = """
import json, sys
import stoker
from tests.faults.test_deterministic_epochs import MODE, slow_dataset
target, state_file, index, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
dataset = slow_dataset().distribute(
    target, processing_mode=MODE, consumer_index=index, num_consumers=count
)
try:
    with open(state_file) as file:
        iterator = dataset.iterator(state=json.load(file))
except FileNotFoundError:
    iterator = dataset.iterator(epoch=0)
for element in iterator:
    print(json.dumps([element, iterator.state_dict()]), flush=True)
"""


def _trainer(target: str, state: Path, index: int, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(TRAINER), target, str(state)]
    return subprocess.Popen([*command, str(index), str(count)], stdout=subprocess.PIPE, text=True)


def test_killed_trainers_continue_with_other_numbers(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    steps = 100
    with stoker.LocalCluster(2) as cluster:
        trainers = [_trainer(cluster.target, state, i, 2) for i in range(2)]
        found: list[list[int]] = [[], []]
        saved = {}
        for trainer, mine in zip(trainers, found, strict=True):
            assert trainer.stdout is not None
            for _ in range(steps):
                element, saved = json.loads(trainer.stdout.readline())
                mine.append(element)
        for trainer in trainers:
            trainer.kill()
            trainer.wait()
            assert trainer.stdout is not None
            trainer.stdout.close()
        state.write_text(json.dumps(saved))
        cluster.kill_worker(0)
        cluster.add_worker()
        trainers = [_trainer(cluster.target, state, i, 3) for i in range(3)]
        rest = [
            [json.loads(line)[0] for line in trainer.communicate(timeout=60)[0].splitlines()]
            for trainer in trainers
        ]
    assert found == [EXPECTED[i : 2 * steps : 2] for i in range(2)]
    assert rest == [EXPECTED[2 * steps + i :: 3] for i in range(3)]


def _dies_at_77(x: int) -> int:
    if x == 77:
        os.kill(os.getpid(), signal.SIGKILL)
    return _slow(x)


def test_an_element_that_kills_is_one_error_at_its_position() -> None:
    with stoker.LocalCluster(2) as cluster:
        dataset = stoker.Dataset.range(200).map(_dies_at_77)
        found = outcomes(dataset.distribute(cluster, processing_mode=MODE).iterator(epoch=0))
    assert isinstance(found[77], PoisonedElementError)
    assert [x for k, x in enumerate(found) if k != 77] == [x for x in range(200) if x != 77]


def test_reading_fails_with_the_cause_if_no_worker_is_left() -> None:
    with stoker.LocalCluster(1) as cluster:
        dataset = slow_dataset().distribute(cluster, processing_mode=MODE)
        iterator = dataset.iterator(epoch=0)
        read(iterator, 10)
        cluster.kill_worker(0)
        assert eventually(lambda: cluster.num_workers() == 0)
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="SIGKILL"):
            read(iterator, deadline=60.0)
        assert 20.0 < time.monotonic() - began < 50.0
