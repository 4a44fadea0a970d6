"""Workers that an operator drains: `DrainWorker`, `Drain`, and the end of the process."""

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stoker
from stoker.service import DispatchServer, WorkerConfig, WorkerServer
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.control import rpc
from stoker.service.rules.processing_modes import ShardingPolicy
from stoker.service.worker import actions as a
from stoker.service.worker import logic as w
from stoker.service.worker.processes.supervisor import Supervisor
from stoker.service.worker.shell import Shell
from tests.service.dispatcher.test_dispatcher_logic import C1, W1, W2, Talk, only
from tests.service.worker.test_worker_logic import HELLO, START, WELCOME, _running
from tests.serving import Service, eventually, read

DRAIN = m.DrainWorker("host:1")


def _reading() -> Talk:
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    return talk


def _ask(talk: Talk) -> tuple[m.Reply, list[tuple[int, object]]]:
    reply, actions = talk.logic.call(DRAIN, talk.now)
    return reply, talk._shown(actions)


def _drain(target: str, worker: str) -> None:
    rpc.call(target.removeprefix("grpc://"), m.DrainWorker(worker), 10)


# ── the dispatcher ───────────────────────────────────────────────────────────────────────────────


def test_worker_is_asked_to_drain_and_gets_nothing_more():
    talk = _reading()
    task = talk.task(W1)
    reply, said = _ask(talk)
    assert reply == m.Done("worker host:1 drains")
    assert said == [(W1, m.Drain())]
    assert not only(talk.say(W1, m.SplitRequest(task, 0, 0, want=2)), m.SplitGrant)
    talk.join(W2)
    granted = talk.say(W2, m.SplitRequest(talk.task(W2), 0, 0, want=4))
    assert len(only(granted, m.SplitGrant)) == 1


def test_second_request_changes_nothing():
    talk = _reading()
    _ask(talk)
    assert _ask(talk) == (m.Done("worker host:1 is draining already"), [])


def _asked_while_away() -> tuple[Talk, m.WorkerHello]:
    """Return a dispatcher that was asked to drain a worker without a session, and its hello."""
    talk = _reading()
    talk.logic.disconnected(W1, talk.now)
    assert _ask(talk) == (m.Done("worker host:1 drains"), [])
    hello: dict[str, Any] = {
        "worker_id": talk.worker_ids[W1],
        "journal_id": talk.logic.state.history.journal_id,
        "key": talk.key(W1),
    }
    address = {"tcp": "host:1"}
    return talk, m.WorkerHello(1, 1, "host:1", address, m.Versions("3.11", "2"), **hello)


def test_worker_that_was_away_is_asked_when_it_connects_again():
    talk, hello = _asked_while_away()
    assert only(talk.say(W2, hello), m.Drain) == [(W2, m.Drain())]
    draining = msgspec.structs.replace(hello, draining=True, session=2)
    assert only(talk.say(3, draining), m.Drain) == []


@pytest.mark.parametrize(
    ("workers", "named"),
    [
        (0, "none"),
        (2, "'host:1', 'host:2'"),
        (6, "'host:1', 'host:2', 'host:3', 'host:4', 'host:5', ..."),
    ],
)
def test_unknown_worker_is_refused_and_others_are_named(workers: int, named: str):
    talk = Talk()
    for peer in range(1, workers + 1):
        talk.join(peer)
    reply = talk.call(m.DrainWorker("host:7"))
    assert isinstance(reply, m.Failed)
    assert reply.error.message == f"no worker is at 'host:7'; the workers are at: {named}"


# ── the worker ───────────────────────────────────────────────────────────────────────────────────


def test_asked_worker_begins_nothing_and_stops_when_drained():
    worker = w.Worker(HELLO, 1000)
    worker.session_opened()
    worker.session_message(WELCOME, 0.0)
    actions = worker.session_message(m.Drain(), 0.0)
    assert actions == [a.SendToDispatcher(m.WorkerDraining()), a.StopDrained()]
    assert worker.drained
    refused = worker.session_message(START, 0.0)
    assert refused == [a.SendToDispatcher(m.TaskProgress(20, delivered=True))]


def test_asked_worker_keeps_what_was_computed():
    worker = _running()
    worker.produced(20, Chunk([1], 8))
    worker.session_message(m.Drain(), 0.0)
    assert not worker.drained


# ── servers ──────────────────────────────────────────────────────────────────────────────────────


def _slow(number: int) -> int:
    time.sleep(1e-3)
    return number


@pytest.mark.parametrize("journaled", [False, True])
def test_drained_worker_loses_no_element(tmp_path: Path, journaled: bool):
    fields: dict[str, Any] = {}
    if journaled:
        fields = {"work_dir": str(tmp_path), "fault_tolerant_mode": True}
    with Service(2, **fields) as service:
        numbers = stoker.Dataset.range(3000).map(_slow)
        dataset = numbers.distribute(service.target, "distributed_epoch", on_loss="raise")
        drained, other = service.workers
        with dataset.iterator() as iterator:
            found = [next(iterator) for _ in range(100)]
            _drain(service.target, drained.address)
            found += read(iterator)
            assert sorted(found) == list(range(3000))
            drained.join()
            assert eventually(lambda: list(service.state.addresses) == [other.address])


def test_drain_holds_when_the_dispatcher_is_restarted(tmp_path: Path):
    """The worker has computed elements that nobody reads until after the restart."""
    fields: dict[str, Any] = {"work_dir": str(tmp_path), "fault_tolerant_mode": True}
    with Service(1, **fields) as service:
        dataset = (
            stoker.Dataset.range(2000)
            .map(_slow)
            .distribute(
                service.target, "distributed_epoch", on_loss="raise", max_outstanding_requests=1
            )
        )
        [drained] = service.workers
        with dataset.iterator() as iterator:
            found = [next(iterator)]
            _drain(service.target, drained.address)
            service.restart_dispatcher(**fields)
            assert eventually(
                lambda: [x.draining for x in service.state.workers.values()] == [True]
            )
            service.add_worker()
            found += read(iterator)
        assert sorted(found) == list(range(2000))
        drained.join()


def test_stop_ends_a_drain_that_nobody_reads():
    def closing() -> list[bool]:
        return [x.daemon for x in threading.enumerate() if x.name == "closing-stoker"]

    with Service(1) as service:
        [worker] = service.workers
        dataset = stoker.Dataset.range(10**6).distribute(
            service.target, processing_mode="distributed_epoch"
        )
        with dataset.iterator() as iterator:
            next(iterator)
            _drain(service.target, worker.address)
            assert eventually(lambda: service.tasks[0].cut or service.tasks[0].ended)
            assert not worker._ended.is_set()
            assert eventually(lambda: closing() == [True])  # a program may end before
            worker.stop()
        worker.join()


def test_worker_that_is_asked_while_it_starts_drains(monkeypatch: pytest.MonkeyPatch):
    start = Shell.start

    def asked_at_once(shell: Shell) -> None:
        shell._asked_to_drain()
        start(shell)

    monkeypatch.setattr(Shell, "start", asked_at_once)
    with DispatchServer() as dispatcher:
        worker = WorkerServer(WorkerConfig(dispatcher_address=dispatcher.target))
        joining = threading.Thread(target=worker.join, daemon=True)
        joining.start()
        joining.join(30)
        assert not joining.is_alive()
        assert dispatcher.num_workers() == 0


def test_supervisor_does_not_restart_a_drained_worker():
    with DispatchServer() as dispatcher:
        config = WorkerConfig(dispatcher_address=dispatcher.target)
        supervisor = Supervisor(config, 2)
        supervisor.start()
        try:
            first, second = supervisor.wait_serving()
            _drain(dispatcher.target, first)
            assert eventually(lambda: dispatcher.num_workers() == 1)
            assert eventually(lambda: len(supervisor.pids) == 1)
            _drain(dispatcher.target, second)
            joining = threading.Thread(target=supervisor.join)
            joining.start()
            joining.join(30)
            assert not joining.is_alive()
            assert dispatcher.num_workers() == 0
        finally:
            supervisor.stop()


@pytest.mark.parametrize("threads", [False, True])
def test_worker_of_a_local_cluster_can_be_drained(threads: bool, caplog: pytest.LogCaptureFixture):
    with stoker.LocalCluster(2, threads=threads) as cluster:
        _drain(cluster.target, cluster.workers[0])
        assert eventually(lambda: cluster.num_workers() == 1)
        dataset = stoker.Dataset.range(10).distribute(cluster, "distributed_epoch")
        assert sorted(read(dataset)) == list(range(10))
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


@pytest.mark.parametrize("mode", [ShardingPolicy.OFF, ShardingPolicy.DYNAMIC])
def test_epoch_goes_on_with_the_worker_that_replaces_a_drained_one(mode: ShardingPolicy):
    with Service(1) as service:
        [drained] = service.workers
        dataset = stoker.Dataset.range(2000).map(_slow).distribute(service.target, mode)
        with dataset.iterator() as iterator:
            found = [next(iterator)]
            _drain(service.target, drained.address)
            service.add_worker()
            found += read(iterator)
        drained.join()
        assert set(found) == set(range(2000))


def test_consumers_of_rounds_go_on_without_a_drained_worker():
    with Service(2) as service:

        def consumer(index: int) -> Any:
            return (
                stoker.Dataset.range(10**6)
                .repeat()
                .distribute(
                    service.target,
                    "parallel_epochs",
                    job_name="rounds",
                    consumer_index=index,
                    num_consumers=2,
                )
                .iterator()
            )

        with consumer(0) as first, consumer(1) as second:
            steps = [(next(first), next(second)) for _ in range(100)]
            _drain(service.target, service.workers[0].address)
            ends = threading.Thread(target=service.workers[0].join)
            ends.start()
            while ends.is_alive():
                steps.append((next(first), next(second)))
            steps += [(next(first), next(second)) for _ in range(100)]
        assert all(y == x + 1 for x, y in steps)
