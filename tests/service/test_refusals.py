"""Workers that the dispatcher refuses: they ask less and less often, and exit with the reason."""

import sys
import threading

import pytest

from stoker.errors import FailedPreconditionError
from stoker.service import DispatchServer, WorkerConfig, WorkerServer
from stoker.service import messages as m
from stoker.service.dispatcher.peers.supervisors import Supervisors
from stoker.service.dispatcher.peers.workers import Workers
from stoker.service.worker.processes.supervisor import Supervisor
from stoker.service.worker.processes.supervisor_session import SupervisorSession
from tests.manual_clock import ManualClock
from tests.serving import Service, eventually

REASON = "no common control protocol"


def refuse(monkeypatch, owner) -> list[m.ToDispatcher]:
    """Refuse all hellos; return those that arrive."""
    hellos: list[m.ToDispatcher] = []

    def hello(_self, _peer, message, *_):
        hellos.append(message)
        raise FailedPreconditionError(REASON)

    monkeypatch.setattr(owner, "hello", hello)
    return hellos


def refusing_worker(service: Service, seconds: float) -> WorkerServer:
    """Return a worker that has registered and stops when it is refused for `seconds`."""
    worker = WorkerServer(dispatcher_address=service.target, start=False, clock=service.clock)
    worker.refused_seconds = seconds
    worker.start()
    return worker


def break_sessions(dispatcher: DispatchServer) -> None:
    """End all sessions; the peers open new ones."""
    sessions = dispatcher._shell._sessions
    dispatcher._loop.call_soon_threadsafe(lambda: [close() for _, close in sessions.values()])


def test_refused_worker_asks_less_often_and_stops_with_the_reason(monkeypatch, caplog):
    clock = ManualClock()
    with Service(0, clock=clock) as service:
        with refusing_worker(service, seconds=1.0) as worker:
            hellos = refuse(monkeypatch, Workers)
            break_sessions(service.dispatcher)
            stopped = threading.Thread(target=worker.join)
            stopped.start()
            clock.advance(1.5)
            asked = len(hellos)
            assert clock.eventually(lambda: not stopped.is_alive())
            assert isinstance(worker.failure, FailedPreconditionError)
            assert str(worker.failure) == REASON
        assert 3 <= asked <= 9  # the pauses are 0.05 s, 0.1 s, 0.2 s, ... or half of that
        assert f"the dispatcher refuses this worker: {REASON}" in caplog.text


def test_worker_that_is_welcomed_again_stays(monkeypatch):
    with Service(0) as service, refusing_worker(service, seconds=600.0) as worker:
        with monkeypatch.context() as patch:
            hellos = refuse(patch, Workers)
            break_sessions(service.dispatcher)
            assert eventually(lambda: len(hellos) > 2)
            assert worker.refused
        assert eventually(lambda: not worker.refused)
        assert worker.failure is None
        assert worker._shell is not None
        assert worker._shell._refused_since is None


def test_refused_supervisor_asks_less_often(monkeypatch):
    hellos = refuse(monkeypatch, Supervisors)
    clock = ManualClock()
    with DispatchServer(clock=clock) as dispatcher:
        session = SupervisorSession(dispatcher.target, list, clock=clock)
        session.start()
        try:
            clock.advance(1.5)
            assert 2 < len(hellos) <= 9
        finally:
            session.stop()


IMPATIENT_CHILD = """
import sys
from stoker.service.worker import server
server.REFUSED_SECONDS = 0.5
from stoker.service.worker.processes.child import main
sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
"""


def test_supervisor_of_a_refused_worker_ends_with_the_reason(monkeypatch):
    with DispatchServer() as dispatcher:
        supervisor = Supervisor(
            WorkerConfig(dispatcher_address=dispatcher.target),
            processes=2,
            command=(sys.executable, "-c", IMPATIENT_CHILD),
        )
        supervisor.start()
        try:
            supervisor.wait_serving()
            refuse(monkeypatch, Workers)
            break_sessions(dispatcher)
            with pytest.raises(FailedPreconditionError, match=REASON):
                supervisor.join()
            assert supervisor.pids == []
        finally:
            supervisor.stop()


def test_worker_that_is_refused_at_its_start_is_not_restarted(monkeypatch):
    hellos = refuse(monkeypatch, Workers)
    with DispatchServer() as dispatcher:
        with pytest.raises(FailedPreconditionError, match=REASON):
            WorkerServer(dispatcher_address=dispatcher.target)
        assert len(hellos) == 1
        supervisor = Supervisor(WorkerConfig(dispatcher_address=dispatcher.target))
        supervisor.start()
        try:
            with pytest.raises(FailedPreconditionError, match=REASON):
                supervisor.wait_serving()
        finally:
            supervisor.stop()
        assert len(hellos) == 2
