"""The session of a parent of workers, against a real dispatcher."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from stoker.service import DispatchServer, WorkerServer
from stoker.service import messages as m
from stoker.service.dispatcher.peers.supervisors import Supervisors
from stoker.service.keys import WorkerIdentity
from stoker.service.worker.processes.process import LostCalls, WorkerProcess
from stoker.service.worker.processes.supervisor_session import SupervisorSession
from tests.serving import eventually

KEY = bytes(range(16))


@dataclass
class _Child:
    """A worker process."""

    identity: WorkerIdentity | None
    active: bool = True

    def active_within(self, seconds: float) -> bool:
        return self.active

    def lost_calls(self) -> LostCalls:
        return LostCalls()


_DEAD: Any = _Child(WorkerIdentity(9, KEY))


def _no_children() -> list[WorkerProcess]:
    return []


def recorded(monkeypatch) -> tuple[list[m.SupervisorHello], list[m.ToDispatcher]]:
    """Record what supervisors send: hellos and other messages."""
    hellos: list[m.SupervisorHello] = []
    messages: list[m.ToDispatcher] = []
    hello, received = Supervisors.hello, Supervisors.received

    def record_hello(self, peer, message):
        hellos.append(message)
        hello(self, peer, message)

    def record(self, message, now):
        messages.append(message)
        received(self, message, now)

    monkeypatch.setattr(Supervisors, "hello", record_hello)
    monkeypatch.setattr(Supervisors, "received", record)
    return hellos, messages


def test_leases_are_renewed_on_one_session(monkeypatch):
    hellos, messages = recorded(monkeypatch)
    identities = (WorkerIdentity(5, KEY), True), (WorkerIdentity(6, KEY), False), (None, True)
    children: Any = [_Child(*each) for each in identities]
    with DispatchServer(worker_timeout_ms=300) as dispatcher:
        session = SupervisorSession(dispatcher.target, lambda: children)
        session.start()
        try:
            assert eventually(lambda: len(messages) >= 5)
        finally:
            session.stop()
    assert len(hellos) == 1
    assert set(map(type, messages)) == {m.KeepAlive}
    assert messages[0] == m.KeepAlive({5: KEY})


def test_a_death_without_a_session_is_sent_when_one_opens(monkeypatch):
    _, messages = recorded(monkeypatch)
    with DispatchServer() as dispatcher:
        session = SupervisorSession(dispatcher.target, _no_children)
        session.report_death(_DEAD, "was killed")
        session.start()
        try:
            assert eventually(lambda: messages)
        finally:
            session.stop()
    assert messages[0] == m.WorkerDied(9, "it was killed", KEY)


def test_deaths_are_repeated_to_a_restarted_dispatcher(monkeypatch):
    _, messages = recorded(monkeypatch)
    with ExitStack() as stack:
        first = stack.enter_context(DispatchServer())
        session = SupervisorSession(first.target, _no_children)
        session.start()
        stack.callback(session.stop)
        session.report_death(_DEAD, "was killed")
        assert eventually(lambda: messages)
        first.stop()
        messages.clear()
        stack.enter_context(DispatchServer(port=int(first.target.rpartition(":")[2])))
        assert eventually(lambda: messages)
    assert messages[0] == m.WorkerDied(9, "it was killed", KEY)


def test_a_worker_publishes_each_id_it_is_assigned():
    ids: list[WorkerIdentity] = []
    with DispatchServer() as dispatcher:
        worker = WorkerServer(dispatcher_address=dispatcher.target, start=False)
        worker.on_registered = ids.append
        with worker:
            assert len(ids) == 1
