"""Exceptions planted in dispatcher, worker and client: each ends its owner or one session."""

import logging
import subprocess
import sys
import threading

import pytest

import stoker
from stoker.errors import FailedPreconditionError, StokerError
from stoker.service import DispatchServer, WorkerConfig, WorkerServer
from stoker.service import messages as m
from stoker.service.client import logic as client_logic
from stoker.service.control import rpc, rpc_session
from stoker.service.dispatcher.commits import ledger
from stoker.service.dispatcher.logic import Dispatcher
from stoker.service.dispatcher.peers.clients import Clients
from stoker.service.dispatcher.peers.workers import Workers
from stoker.service.dispatcher.sessions import sessions
from stoker.service.worker import logic as worker_logic
from stoker.service.worker.pipelines import task_pipelines
from stoker.service.worker.processes.process import WorkerProcess
from stoker.service.worker.processes.supervisor_session import SupervisorSession
from tests.manual_clock import ManualClock
from tests.serving import Service, eventually, iterator_with_deadline, read


class PlantedError(Exception):
    """The exception of these tests."""


def plant(monkeypatch, owner, name, times=None, after=False) -> threading.Event:
    """Make a method raise, at most `times` times; return an event that is set when it does.

    With `after` it raises when it has done its work.
    """
    raised = threading.Event()
    original = getattr(owner, name)
    left = [None] * (10**6 if times is None else times)

    def method(*arguments, **named):
        result = original(*arguments, **named) if after or not left else None
        if left:
            left.pop()
            raised.set()
            raise PlantedError("planted")
        return result

    monkeypatch.setattr(owner, name, method)
    return raised


def has_traceback(caplog) -> bool:
    return any(r.exc_info and r.exc_info[0] is PlantedError for r in caplog.records)


def ends(server) -> bool:
    """Return whether `join` of a server returns."""
    waiting = threading.Thread(target=server.join, daemon=True)
    waiting.start()
    waiting.join(10)
    return not waiting.is_alive()


# ── dispatcher ───────────────────────────────────────────────────────────────────────────────────
def test_exception_before_a_change_refuses_one_session(monkeypatch, caplog):
    with Service(1) as service:
        plant(monkeypatch, Clients, "hello", times=1)
        dataset = stoker.Dataset.range(3).distribute(service.target)
        with pytest.raises(
            StokerError, match="internal error of the dispatcher: PlantedError: planted"
        ):
            read(dataset)
        assert has_traceback(caplog)
        assert sorted(read(stoker.Dataset.range(3).distribute(service.target))) == [0, 1, 2]
        assert service.dispatcher.failure is None


def test_exception_in_a_call_is_its_reply(monkeypatch, caplog):
    with Service(0) as service:
        address = service.target.removeprefix("grpc://")
        plant(monkeypatch, Dispatcher, "_answer", times=1)
        with pytest.raises(StokerError, match="internal error of the dispatcher: PlantedError"):
            rpc.call(address, m.GetCluster(), 5)
        assert has_traceback(caplog)
        assert rpc.call(address, m.GetCluster(), 5) == m.ClusterReply([])


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        pytest.param(ledger, "apply_and_log", False, id="State-apply-False"),
        (Workers, "hello", True),
        (Dispatcher, "tick", False),
        (Dispatcher, "disconnected", False),
    ],
)
def test_exception_after_a_change_stops_the_dispatcher(monkeypatch, caplog, owner, name, after):
    with DispatchServer() as dispatcher:
        plant(monkeypatch, owner, name, after=after)
        address = dispatcher.target.removeprefix("grpc://")
        hello = m.WorkerHello(1, 1, "host:1", {}, m.Versions("3.11", "2"))
        ready = threading.Event()

        def opened() -> None:
            ready.wait(5)
            session.send(hello)

        session = rpc_session.Session(address, opened, lambda _: None, lambda: None, lambda: None)
        ready.set()
        try:
            if name == "disconnected":
                assert eventually(lambda: dispatcher.num_workers() == 1)
                session.close()
            assert ends(dispatcher)
        finally:
            session.close()
        assert isinstance(dispatcher.failure, StokerError)
        assert "internal error of the dispatcher: PlantedError: planted" in str(dispatcher.failure)
        assert has_traceback(caplog)
        monkeypatch.undo()
        DispatchServer(port=int(address.rpartition(":")[2])).stop()  # the port is free


def test_exception_in_a_slice_of_work_stops_the_dispatcher(monkeypatch, caplog):
    monkeypatch.setattr(sessions, "SLICE", 1)  # the second step of any work is in another slice
    with Service(1) as service:
        plant(monkeypatch, Dispatcher, "work")
        with (
            stoker.Dataset.range(3)
            .distribute(service.target, processing_mode="distributed_epoch")
            .iterator()
        ):
            assert ends(service.dispatcher)
        assert "PlantedError: planted" in str(service.dispatcher.failure)
        assert has_traceback(caplog)


FAILING_DISPATCHER = """
import sys
from stoker.service.dispatcher.logic import Dispatcher
def tick(self, now):
    raise RuntimeError("planted")
Dispatcher.tick = tick
sys.argv = ["stoker", "dispatcher", "--port", "0"]
from stoker.cli import main
main()
"""


def test_dispatcher_command_exits_with_its_internal_error():
    done = subprocess.run(
        [sys.executable, "-c", FAILING_DISPATCHER],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "internal error of the dispatcher: RuntimeError: planted" in done.stderr.splitlines()[-1]
    assert "Traceback" in done.stderr


# ── worker ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", ["session_message", "session_opened", "session_lost", "tick"])
def test_exception_of_the_workers_logic_stops_it(monkeypatch, caplog, name):
    clock = ManualClock()
    with Service(1, clock=clock) as service, clock.running():
        [worker] = service.workers
        plant(monkeypatch, worker_logic.Worker, name)
        if name != "tick":
            reset_sessions(service)
        assert ends(worker)
        assert isinstance(worker.failure, StokerError)
        assert "internal error of the worker: PlantedError: planted" in str(worker.failure)
        assert has_traceback(caplog)
        assert eventually(lambda: service.dispatcher.num_workers() == 0)


def reset_sessions(service: Service) -> None:
    """End all sessions of a dispatcher; its peers open new ones."""
    shell = service.dispatcher._shell
    service.dispatcher._loop.call_soon_threadsafe(
        lambda: [close() for _, close in shell._sessions.values()]
    )


def test_worker_that_cannot_start_a_thread_stops(monkeypatch, caplog):
    clock = ManualClock()
    with Service(1, clock=clock) as service, clock.running():

        def no_thread(*_):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(task_pipelines, "Pipeline", no_thread)
        dataset = stoker.Dataset.range(3).distribute(
            service.target, processing_mode="distributed_epoch"
        )
        with dataset.iterator():
            assert ends(service.workers[0])
        assert "can't start new thread" in str(service.workers[0].failure)
        monkeypatch.undo()
        service.add_worker()
        assert sorted(read(stoker.Dataset.range(3).distribute(service.target))) == [0, 1, 2]


def test_exception_of_on_registered_stops_the_worker(caplog):
    def broken(_identity):
        raise PlantedError("planted")

    with Service(0) as service:
        worker = WorkerServer(dispatcher_address=service.target, start=False)
        worker.on_registered = broken
        with pytest.raises(StokerError, match="PlantedError: planted"):
            worker.start()
        worker.stop()
    assert has_traceback(caplog)


FAILING_CHILD = """
import sys
from stoker.service.worker.pipelines import task_pipelines
def no_thread(*_):
    raise RuntimeError("can't start new thread")
task_pipelines.Pipeline = no_thread
from stoker.service.worker.processes.child import main
sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
"""


def test_worker_process_exits_with_its_internal_error():
    with DispatchServer() as dispatcher:
        process = WorkerProcess(
            WorkerConfig(dispatcher_address=dispatcher.target),
            command=(sys.executable, "-c", FAILING_CHILD),
        )
        try:
            process.wait_serving()
            with (
                stoker.Dataset.range(3)
                .distribute(dispatcher.target, processing_mode="distributed_epoch")
                .iterator()
            ):
                end = process.wait(30)
            assert end.returncode == 1
            assert "can't start new thread" in " ".join(end.last_lines)
            assert process.refusal() is None, "a restart may help"
        finally:
            process.stop()


# ── client ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "name", ["session_message", "session_lost", "tick", "worker_message", "connected", "take"]
)
def test_exception_of_the_clients_logic_is_raised_by_reads(monkeypatch, caplog, name):
    with Service(1) as service:
        dataset = stoker.Dataset.range(10).repeat().distribute(service.target)
        with iterator_with_deadline(dataset.iterator()) as iterator:
            next(iterator)
            plant(monkeypatch, client_logic.Client, name)
            if name in ("session_message", "session_lost", "connected"):
                service.add_worker()
                reset_sessions(service)
            with pytest.raises(FailedPreconditionError, match="PlantedError: planted") as caught:
                sum(1 for _ in iterator)
            assert isinstance(caught.value.__cause__, PlantedError)
            with pytest.raises(FailedPreconditionError, match="planted"):
                next(iterator)
        assert has_traceback(caplog)
        monkeypatch.undo()
        assert eventually(lambda: not service.state.clients), "its lease ends after a minute"


def test_reader_that_cannot_start_a_thread_raises(monkeypatch):
    start = threading.Thread.start

    def cannot_start(thread):
        if thread.name == "stoker-dial":
            raise RuntimeError("can't start new thread")
        start(thread)

    clock = ManualClock()
    with Service(1, clock=clock) as service, clock.running():
        monkeypatch.setattr(threading.Thread, "start", cannot_start)
        dataset = stoker.Dataset.range(10).distribute(service.dispatcher)
        with pytest.raises(FailedPreconditionError, match="can't start new thread"):
            read(dataset)


# ── supervisor ───────────────────────────────────────────────────────────────────────────────────
def test_supervisor_goes_on_after_an_exception(caplog):
    asked: list[int] = []

    def workers() -> list[WorkerProcess]:
        asked.append(1)
        if len(asked) == 1:
            raise PlantedError("planted")
        return []

    with DispatchServer(worker_timeout_ms=300) as dispatcher:
        session = SupervisorSession(dispatcher.target, workers)
        session.start()
        try:
            assert eventually(lambda: len(asked) > 3)
        finally:
            session.stop()
    assert has_traceback(caplog)
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
