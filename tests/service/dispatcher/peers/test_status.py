"""The answer to `GetStatus`, by values."""

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stoker
from stoker.cli.status.asking import get_status
from stoker.dataset.streams.measure.bottleneck import Bottleneck
from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service import status as st
from stoker.service.client.shell import ServiceStream
from stoker.service.loading import Loading
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.dispatcher.test_dispatcher_logic import C1, C2, W1, W2, Talk
from tests.serving import DEADLINE, Service, eventually, read


def _status(talk: Talk, **request: str) -> st.Status:
    reply = talk.call(m.GetStatus(**request))
    assert isinstance(reply, m.StatusReply)
    return reply.status


def _reading(mode: ShardingPolicy = ShardingPolicy.DYNAMIC) -> Talk:
    """Return a dispatcher with two workers and a client; both workers computed for 2 s."""
    talk = Talk()
    for worker in (W1, W2):
        talk.join(worker, tags=["FAST"] * (worker == W1), version="1.2")
        talk.say(worker, m.Heartbeat(uptime=1.0))
    talk.read(C1, mode)
    talk.pass_time(2.0)
    talk.say(W1, m.Heartbeat({talk.task(W1): m.TaskReport(10, 1000, 1)}, 3.0))
    talk.say(W2, m.Heartbeat({talk.task(W2): m.TaskReport(30, 3000)}, 3.0))
    return talk


def test_empty_service_has_nothing():
    talk = Talk()
    found = _status(talk)
    assert (found.workers, found.jobs, found.events) == ([], [], [])
    assert [dataset.dataset_id for dataset in found.datasets] == ["data"]
    assert (found.journaled, found.uptime) == (False, 0.0)


def test_worker_has_its_place_versions_and_rate():
    [first, second] = _status(_reading()).workers
    assert first == st.WorkerStatus(
        "host:1", True, 0.0, 3.0, "1.2", "3.11", "2", ["FAST"], {"tcp": "host:1"}, False, 1, 1,
        None, False, 5.0, 500.0,
    )  # fmt: skip
    assert (second.elements_per_second, second.bytes_per_second) == (15.0, 1500.0)


def test_worker_loads_until_a_heartbeat_says_otherwise_or_is_missing():
    talk = _reading()
    talk.say(W1, m.Heartbeat(loading=Loading("torch", 2.0)))
    talk.say(W2, m.Heartbeat(loading=Loading("", 1.0)))
    assert [x.loading for x in _status(talk).workers] == [Loading("torch", 2.0), Loading("", 1.0)]
    talk.say(W2, m.Heartbeat())
    assert _status(talk).workers[1].loading is None
    talk.pass_time(5.0)
    assert _status(talk).workers[0].loading is None


def test_epoch_has_the_sums_of_its_tasks():
    [job] = _status(_reading()).jobs
    assert (job.name, job.processing_mode, job.dataset_id) == ("job", "DYNAMIC", "data")
    [epoch] = job.epochs
    assert epoch == st.EpochStatus(
        "0", "running", "", 2, 2, 1, 40, 4000, 1, 20.0, 2000.0, 0, 0, 0, 0
    )  # fmt: skip


def test_rates_are_over_the_real_interval_and_0_without_progress():
    talk = _reading()
    talk.pass_time(4.0)
    talk.say(W1, m.Heartbeat({talk.task(W1): m.TaskReport(110, 1000)}))
    talk.say(W2, m.Heartbeat())
    [first, second] = _status(talk).workers
    assert (first.elements_per_second, first.active_tasks) == (25.0, 1)
    assert (second.elements_per_second, second.active_tasks) == (0.0, 0)
    assert _status(talk).jobs[0].epochs[0].elements_per_second == 25.0


def test_worker_that_is_silent_has_no_rate():
    talk = _reading()
    talk.pass_time(3.5)
    [first, _] = _status(talk).workers
    assert (first.silent_seconds, first.elements_per_second, first.active_tasks) == (3.5, 0.0, 0)


def test_totals_of_a_worker_from_an_earlier_dispatcher_are_no_rate():
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    talk.pass_time(1.0)
    talk.say(W1, m.Heartbeat({talk.task(W1): m.TaskReport(10**6, 10**9)}))
    [epoch] = _status(talk).jobs[0].epochs
    assert (epoch.elements, epoch.elements_per_second) == (10**6, 0.0)


def test_elements_of_a_lost_worker_stay_counted():
    talk = _reading()
    talk.say(W2, m.WorkerLeave({talk.task(W2): 7}))
    found = _status(talk)
    [epoch] = found.jobs[0].epochs
    assert (epoch.elements, epoch.elements_per_second) == (40, 5.0)
    assert (epoch.tasks_lost, epoch.elements_lost, epoch.splits_lost) == (1, 7, 0)
    assert [worker.address for worker in found.workers] == ["host:1"]


def test_ended_epoch_has_all_its_elements():
    """The last heartbeat comes after the end."""
    talk = _reading(ShardingPolicy.OFF)
    talk.say(W2, m.WorkerLeave({}, {talk.task(W2): m.TaskReport(31, 3100)}))
    task = talk.task(W1)
    ended = m.TaskProgress(task, True, True, computed=m.TaskReport(500, 50_000, 1))
    talk.say(W1, ended)
    talk.say(C1, m.TaskRead(task))
    talk.say(C1, m.ClientClose())
    [epoch] = _status(talk, job="job").jobs[0].epochs
    assert (epoch.state, epoch.elements, epoch.bytes, epoch.errors) == ("finished", 531, 53_100, 1)
    elements = {each.worker: (each.state, each.elements) for each in epoch.details}
    assert elements == {"host:1": ("delivered", 500), "host:2": ("lost", 31)}


def test_totals_of_removed_tasks_are_dropped():
    talk = _reading()
    for _ in range(20):
        talk.read(C2, named=False)
        talk.say(W1, m.Heartbeat({talk.task(W1): m.TaskReport(10, 10)}))
        talk.say(C2, m.ClientClose())
        talk.pass_time(1)
        talk.say(C1, m.Heartbeat())
    reports = talk.logic._reports
    assert len(reports._tasks) <= 2 * len(talk.logic.state.tasks) + 1


def test_splits_of_a_dead_worker_are_counted():
    talk = _reading()
    talk.say(W1, m.SplitRequest(talk.task(W1), 0, 0, begin=[0, 1]))
    talk.pass_time(9.0)
    talk.say(C1, m.Heartbeat())
    talk.pass_time(2.0)
    [epoch] = _status(talk).jobs[0].epochs
    assert (epoch.tasks_lost, epoch.splits_lost, epoch.elements_lost) == (2, 2, 0)


def test_elements_sent_to_a_dead_client_are_counted():
    talk = _reading()
    talk.say(W1, m.TaskProgress(talk.task(W1), dropped=9))
    [epoch] = _status(talk).jobs[0].epochs
    assert (epoch.tasks_lost, epoch.elements_lost) == (0, 9)


def test_worker_that_delivered_everything_is_no_loss():
    talk = _reading()
    talk.say(W2, m.WorkerDraining())
    assert [worker.draining for worker in _status(talk).workers] == [False, True]
    talk.say(W2, m.TaskProgress(talk.task(W2), delivered=True))
    talk.say(W2, m.WorkerLeave())
    [epoch] = _status(talk).jobs[0].epochs
    assert (epoch.tasks_lost, epoch.tasks, epoch.running_tasks) == (0, 2, 1)


def test_client_has_its_rate_and_share_of_waiting():
    talk = _reading()
    talk.say(C1, m.Heartbeat(reading=m.ReadReport(100, 1000, 1.0, 2.0)))
    [client] = _status(talk).jobs[0].clients
    assert (client.elements, client.elements_per_second, client.waiting) == (100, 0.0, None)
    report = m.ReadReport(300, 5000, 4.0, 6.0, "worker", "worker host:1 is slow")
    talk.say(C1, m.Heartbeat(reading=report))
    [client] = _status(talk).jobs[0].clients
    assert (client.elements_per_second, client.bytes_per_second) == (50.0, 1000.0)
    assert (client.waiting, client.bottleneck) == (0.75, "worker")
    assert (client.sentence, client.tasks, client.epoch) == ("worker host:1 is slow", 2, "0")


def test_epochs_have_the_states_that_users_know():
    talk = Talk()
    talk.read(C1, ShardingPolicy.OFF)

    def state() -> str:
        return _status(talk).jobs[0].epochs[0].state

    assert state() == "starting"
    talk.join(W1)
    assert state() == "running"
    talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True))
    assert state() == "computed"
    talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True, delivered=True))
    assert state() == "finished"
    talk.say(C1, m.ClientClose())
    assert state() == "finished"


def test_epoch_that_nobody_reads_is_stopped():
    talk = _reading()
    talk.read(C2, named=True, process="other")
    talk.say(C1, m.ClientClose())
    talk.say(C2, m.ClientClose())
    assert _status(talk).jobs[0].epochs[0].state == "running"  # kept for the next client
    iteration = next(iter(talk.logic.state.iterations.values()))
    talk.logic._iterations._stop(iteration)
    assert _status(talk).jobs[0].epochs[0].state == "stopped"


def test_failed_epoch_has_its_error():
    talk = _reading()
    iteration = next(iter(talk.logic.state.iterations.values()))
    talk.logic._iterations._fail(iteration, ErrorRecord("NotFoundError", "no file"))
    [epoch] = _status(talk).jobs[0].epochs
    assert (epoch.state, epoch.error) == ("failed", "no file")


def test_losses_are_events_with_their_time():
    talk = _reading()
    talk.say(W1, m.WorkerLeave({talk.task(W1): 7}))
    talk.pass_time(1.5)
    left = "worker host:1 left: it was stopped; 1 task ends"
    lost = "job 'job': 7 elements are lost with worker host:1"
    assert _status(talk).events == [
        st.EventStatus(1.5, "INFO", left, "host:1"),
        st.EventStatus(1.5, "WARNING", lost, "host:1", "job", "0"),
    ]


def test_one_job_is_shown_with_its_tasks():
    talk = _reading()
    [job] = _status(talk, job="job").jobs
    [epoch] = job.epochs
    assert [(x.worker, x.state, x.elements, x.errors) for x in epoch.details] == [
        ("host:1", "running", 10, 1),
        ("host:2", "running", 30, 0),
    ]
    assert [x.elements_per_second for x in epoch.details] == [5.0, 15.0]
    assert _status(talk).jobs[0].epochs[0].details == []


def test_tasks_of_earlier_epochs_are_left_out():
    talk = _reading()
    talk.say(C1, m.ClientClose())
    job = m.JobParameters(ShardingPolicy.DYNAMIC)
    for epoch in range(1, 4):
        hello = m.ClientHello(1, 1, "data", "job", job, (epoch,), named=True)
        talk.say(C2 + epoch, hello)
        ended = [m.TaskProgress(talk.task(worker), True, True) for worker in (W1, W2)]
        for worker, progress in zip((W1, W2), ended, strict=True):
            talk.say(worker, progress)
    [found] = _status(talk, job="job").jobs
    epochs = [(x.epoch, x.state, x.tasks, len(x.details)) for x in found.epochs]
    assert epochs == [
        ("0", "running", 2, 2),
        ("1", "finished", 2, 0),
        ("2", "finished", 2, 0),
        ("3", "finished", 2, 2),
    ]


def test_answer_has_only_what_is_asked_for():
    talk = _reading()
    talk.say(W1, m.WorkerLeave({talk.task(W1): 7}))
    job, dataset = _status(talk, job="job"), _status(talk, dataset_id="data")
    assert (job.workers, job.datasets, job.events) == ([], [], [])
    assert (dataset.workers, dataset.jobs, dataset.events) == ([], [], [])


def test_one_dataset_is_shown_with_its_details():
    talk = _reading()
    [dataset] = _status(talk, dataset_id="data").datasets
    assert dataset.jobs == ["job"]
    assert dataset.details is not None
    assert (dataset.details.tree, dataset.details.element_spec) == (["sim()"], "UnknownSpec()")
    assert dataset.details.options["seed"] is None
    assert _status(talk).datasets[0].details is None


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (m.GetStatus(job="jib"), "no job is named 'jib'; the jobs of this dispatcher: 'job'"),
        (m.GetStatus(dataset_id="none"), "Dataset id none not found"),
    ],
)
def test_unknown_names_are_refused(request_, message):
    reply = _reading().call(request_)
    assert isinstance(reply, m.Failed)
    assert (reply.error.code, message in reply.error.message) == ("NotFoundError", True)


def test_status_changes_nothing():
    talk = _reading()
    commits = talk.logic.commits
    reply, actions = talk.logic.call(m.GetStatus(job="job", dataset_id="data"), talk.now)
    assert (actions, talk.logic.commits, talk.logic.take_unit()) == ([], commits, b"")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(reply), type=m.StatusReply) == reply


def test_reports_of_what_was_removed_are_forgotten():
    talk = _reading()
    reports = talk.logic._reports
    talk.say(C1, m.Heartbeat(reading=m.ReadReport(1, 1, 1.0, 2.0)))
    talk.say(C1, m.ClientClose())
    for _ in range(4):
        talk.say(W1, m.WorkerLeave())
        talk.join(W1)
    talk.say(W2, m.Heartbeat())
    assert (set(reports._workers), reports._clients) == (set(talk.logic.state.workers), {})


def _slow(number: int) -> int:
    time.sleep(0.002)
    return number


def test_running_service_reports_rates_and_waiting():
    with Service(1, worker_timeout_ms=1000, client_timeout_ms=1000) as service:
        dataset = stoker.Dataset.range(10**6).map(_slow).distribute(service.target)
        end = time.monotonic() + DEADLINE
        with dataset.iterator() as iterator:
            while True:
                next(iterator)
                found = service.dispatcher._shell.logic._status.answer(
                    m.GetStatus(), time.monotonic()
                ).status
                [job] = found.jobs
                [client] = job.clients
                if (client.waiting or 0) > 0.5 and job.epochs[0].elements_per_second > 0:
                    break
                assert time.monotonic() < end, found
        assert 0 < client.elements_per_second < 600
        assert 0 < found.workers[0].elements_per_second < 600
        assert found.workers[0].version == found.version == stoker.__version__


def test_restarted_dispatcher_receives_a_heartbeat_at_once():
    """Heartbeats are 5 s apart."""
    with Service(1, worker_timeout_ms=60_000) as service:

        def known() -> bool:
            return get_status(service.target).workers[0].uptime is not None

        assert eventually(known)
        service.restart_dispatcher(worker_timeout_ms=60_000)
        assert eventually(lambda: service.state.workers != {} and known())
        assert get_status(service.target).uptime < 4


def test_restarted_dispatcher_with_a_journal_knows_the_totals(tmp_path: Path):
    """The worker waits for room in its buffer, and sends what it has computed again."""
    fields: dict[str, Any] = {
        "work_dir": str(tmp_path),
        "fault_tolerant_mode": True,
        "worker_timeout_ms": 1000,
    }
    with Service(1, worker={"buffer_bytes": 1000}, **fields) as service:
        dataset = stoker.Dataset.range(10**6).distribute(service.target, "distributed_epoch")
        with dataset.iterator() as iterator:
            next(iterator)
            shell: Any = service.workers[0]._shell
            [task] = service.tasks

            def known() -> bool:
                waits = not shell.logic.may_produce(task.start.task_id)
                [epoch] = get_status(service.target).jobs[0].epochs
                return waits and epoch.elements == task.computed.elements > 0

            assert eventually(known)
            service.restart_dispatcher(**fields)
            assert eventually(known)


@pytest.mark.parametrize("path", [None, "tra\udcffin.py"])
def test_heartbeat_does_not_need_a_bottleneck(path: str | None, monkeypatch: pytest.MonkeyPatch):
    asked = threading.Semaphore(0)

    def bottleneck(_: ServiceStream) -> Bottleneck:
        asked.release()
        if path is None:
            raise AssertionError("a fault of the diagnostics")
        return Bottleneck("source", f"the reading at {path}:1 is slow", 0, "")

    monkeypatch.setattr(ServiceStream, "bottleneck", bottleneck)
    with Service(1, client_timeout_ms=1000) as service:
        dataset = stoker.Dataset.range(1000).distribute(service.target, "distributed_epoch")
        with dataset.iterator() as iterator:
            found = [next(iterator)]
            for _ in range(3):
                assert asked.acquire(timeout=DEADLINE)
            found += read(iterator)
        assert sorted(found) == list(range(1000))
