"""A dispatcher with a journal that is killed or frozen while processes read."""

import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.faults.soak.faults import fill_disk
from tests.faults.soak.processes import Cluster, Trainer
from tests.faults.soak.rules import MODES, Reading, violations
from tests.faults.soak.trainer import Command
from tests.serving import eventually

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

DEADLINE = 200.0
ELEMENTS = 1_200
KILLS = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Yield two workers, two trainers and a dispatcher with a journal."""
    worker = {"shutdown_quiet_period_ms": 25_000}
    with Cluster(tmp_path, 2, ("trainer 0", "trainer 1"), worker=worker) as cluster:
        yield cluster


def begin(trainers: Sequence[Trainer], mode: str, seconds: float = 0.002) -> None:
    """Begin to read an epoch, of a named job if there are several trainers."""
    job_name = "shared" if len(trainers) > 1 else None
    for trainer in trainers:
        trainer.begin(Command("", mode, ELEMENTS, seconds, job_name, "tcp"))


def wait_for_elements(trainers: Sequence[Trainer], count: int) -> None:
    """Wait until the trainers have received `count` elements together."""
    assert eventually(lambda: sum(each.received for each in trainers) >= count, DEADLINE)


def kill_dispatcher_repeatedly(cluster: Cluster, trainers: Sequence[Trainer]) -> None:
    """Kill and restart the dispatcher after each sixth of the elements."""
    for kill in range(1, KILLS + 1):
        wait_for_elements(trainers, kill * ELEMENTS // (KILLS + 2))
        cluster.kill_dispatcher()
        cluster.start_dispatcher()


def finish(trainers: Sequence[Trainer]) -> list[Reading]:
    """Wait for the end of the epoch."""
    return [trainer.finish(DEADLINE) for trainer in trainers]


@pytest.mark.parametrize("mode", MODES)
def test_epoch_is_exact_though_the_dispatcher_is_killed(cluster: Cluster, mode: str) -> None:
    trainers = cluster.trainers[:1]
    begin(trainers, mode)
    kill_dispatcher_repeatedly(cluster, trainers)
    readings = finish(trainers)
    assert violations(mode, ELEMENTS, readings, losses=False, drains=0) == []
    assert readings[0].counted == 0


def test_clients_of_a_named_job_share_it_through_kills(cluster: Cluster) -> None:
    begin(cluster.trainers, MODES[0])
    kill_dispatcher_repeatedly(cluster, cluster.trainers)
    readings = finish(cluster.trainers)
    assert violations(MODES[0], ELEMENTS, readings, losses=False, drains=0) == []
    assert [reading.counted for reading in readings] == [0, 0]


def test_losses_are_counted_while_the_dispatcher_is_away(cluster: Cluster) -> None:
    trainers = cluster.trainers[:1]
    begin(trainers, MODES[0])
    wait_for_elements(trainers, ELEMENTS // 6)
    cluster.kill_dispatcher()
    cluster.machines[0].kill_worker()
    cluster.start_dispatcher()
    readings = finish(trainers)
    assert violations(MODES[0], ELEMENTS, readings, losses=True, drains=0) == []
    assert readings[0].tasks_lost == 1


def test_draining_goes_on_after_a_restart(cluster: Cluster) -> None:
    trainers = cluster.trainers[:1]
    begin(trainers, MODES[0])
    wait_for_elements(trainers, ELEMENTS // 6)
    cluster.machines[0].supervisor.signal(signal.SIGTERM)
    cluster.kill_dispatcher()
    cluster.start_dispatcher()
    readings = finish(trainers)
    assert violations(MODES[0], ELEMENTS, readings, losses=False, drains=1) == []
    assert readings[0].counted == 0
    assert cluster.machines[0].supervisor.wait(DEADLINE) == 0


def test_readers_wait_for_a_dispatcher_that_was_stopped(cluster: Cluster) -> None:
    begin(cluster.trainers[:1], MODES[0])
    wait_for_elements(cluster.trainers[:1], ELEMENTS // 6)
    cluster.leave_dispatcher()
    assert cluster.dispatcher.end() == 0
    cluster.start_dispatcher()
    readings = finish(cluster.trainers[:1])
    assert violations(MODES[0], ELEMENTS, readings, losses=False, drains=0) == []
    assert readings[0].counted == 0


def test_reader_gives_up_when_no_dispatcher_comes_back(tmp_path: Path) -> None:
    patience = {"dispatcher_patience_ms": 2_000}
    with Cluster(tmp_path, 2, ("trainer",), dispatcher=patience) as cluster:
        begin(cluster.trainers, "distributed_epoch")
        wait_for_elements(cluster.trainers, ELEMENTS // 6)
        cluster.kill_dispatcher()
        [reading] = finish(cluster.trainers)
    assert "UnavailableError: the dispatcher at " in reading.error


def test_full_disk_stops_the_dispatcher_until_there_is_room(cluster: Cluster) -> None:
    begin(cluster.trainers[:1], MODES[0])
    wait_for_elements(cluster.trainers[:1], ELEMENTS // 6)
    assert fill_disk(cluster) == 1
    errors = [line for line in cluster.dispatcher.log_tail.splitlines() if " ERROR " in line]
    assert len(errors) == 1
    assert "check the disk and its free space, and start the dispatcher again" in errors[0]
    cluster.start_dispatcher()
    readings = finish(cluster.trainers[:1])
    assert violations(MODES[0], ELEMENTS, readings, losses=False, drains=0) == []
    assert readings[0].counted == 0


def test_frozen_dispatcher_releases_nobody(tmp_path: Path) -> None:
    timeouts = {"worker_timeout_ms": 2_000, "client_timeout_ms": 2_000}
    with Cluster(tmp_path, 2, ("trainer 0",), dispatcher=timeouts) as cluster:
        begin(cluster.trainers, MODES[0], seconds=0.01)
        wait_for_elements(cluster.trainers, ELEMENTS // 6)
        cluster.dispatcher.signal(signal.SIGSTOP)
        eventually(lambda: False, 3 * timeouts["worker_timeout_ms"] / 1000)
        cluster.dispatcher.signal(signal.SIGCONT)
        readings = finish(cluster.trainers)
        assert violations(MODES[0], ELEMENTS, readings, losses=False, drains=0) == []
        assert readings[0].counted == 0
