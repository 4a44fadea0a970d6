"""Peers of the control plane that are frozen, vanish without a word, or reset connections."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest

import stoker
from stoker.errors import UnavailableError
from stoker.service import DispatchServer, WorkerConfig, WorkerServer
from stoker.service import messages as m
from stoker.service.control import rpc, rpc_session
from stoker.service.control.control_connection import ConnectError, WatchedProtocol
from stoker.service.process.clock import CLOCK, Clock
from stoker.service.worker.processes.process import WorkerProcess
from stoker.service.worker.processes.supervisor import Supervisor
from stoker.service.worker.processes.supervisor_session import SupervisorSession
from tests.faults.proxy import Forwarder
from tests.manual_clock import ManualClock
from tests.serving import Service, eventually, read

pytestmark = pytest.mark.timeout(120)

NOTICED_SECONDS = 8.0

_DISPATCHER = """
from stoker.service import DispatchServer
server = DispatchServer()
print(server.target, flush=True)
server.join()
"""


@contextmanager
def dispatcher_process() -> Iterator[tuple[str, int]]:
    """Yield the address and process id of a dispatcher in another process."""
    with subprocess.Popen(
        [sys.executable, "-c", _DISPATCHER], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().removeprefix("grpc://"), process.pid
        finally:
            process.kill()


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process and continue it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class RecordedSession:
    """A session with the address that records its callbacks.

    Attributes:
        opened: the number of streams opened.
        lost: the reasons of their ends.
        received: the messages.
    """

    def __init__(self, address: str, clock: Clock = CLOCK) -> None:
        self.opened = 0
        self.lost: list[str] = []
        self.received: list[m.FromDispatcher] = []
        self._ready = threading.Event()
        self._session = rpc_session.Session(
            address,
            self._open,
            self.received.append,
            self._lose,
            lambda: None,
            peer_timeout=1.0,
            clock=clock,
        )
        self._ready.set()

    def _open(self) -> None:
        assert self._ready.wait(5)
        self.opened += 1
        self._session.send(m.SupervisorHello(m.PROTOCOL_MIN, m.PROTOCOL_MAX))

    def _lose(self) -> None:
        assert self._ready.wait(5)
        self.lost.append(self._session.failure)

    def __enter__(self) -> "RecordedSession":
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()


def _lost(worker: WorkerServer) -> bool:
    assert worker._shell is not None
    return worker._shell._lost_at is not None


def test_a_worker_notices_a_frozen_dispatcher_and_comes_back() -> None:
    with (
        dispatcher_process() as (address, pid),
        WorkerServer(dispatcher_address=address, peer_timeout_ms=2_000) as worker,
    ):
        with frozen(pid):
            assert eventually(lambda: _lost(worker), NOTICED_SECONDS)
        assert eventually(lambda: not _lost(worker))
        assert sorted(read(stoker.Dataset.range(5).distribute(address))) == list(range(5))


def test_a_frozen_dispatcher_does_not_count_as_reached() -> None:
    with (
        dispatcher_process() as (address, pid),
        WorkerServer(
            dispatcher_address=address, dispatcher_timeout_ms=3_000, peer_timeout_ms=1_000
        ) as worker,
    ):
        stopped = threading.Thread(target=worker.join)
        stopped.start()
        with frozen(pid):  # its port accepts connections all the while
            stopped.join(15)
        assert not stopped.is_alive()


def test_a_dispatcher_notices_a_frozen_worker_process() -> None:
    with DispatchServer(worker_timeout_ms=600_000, peer_timeout_ms=2_000) as dispatcher:
        process = WorkerProcess(WorkerConfig(dispatcher_address=dispatcher.target))
        try:
            process.wait_serving()
            sessions = dispatcher._shell._sessions
            assert len(sessions) == 1
            with frozen(process.pid):
                assert eventually(lambda: not sessions, NOTICED_SECONDS)
                assert dispatcher.num_workers() == 1, "its lease is as long as before"
            assert eventually(lambda: len(sessions) == 1)
            assert dispatcher.num_workers() == 1
        finally:
            process.stop()


def test_both_ends_notice_a_connection_that_swallows_bytes() -> None:
    clock = ManualClock()
    with (
        Service(0, peer_timeout_ms=1_000, clock=clock) as service,
        Forwarder(service.address[1]) as network,
        RecordedSession(network.address, clock) as session,
    ):
        assert eventually(lambda: session.received)
        sessions = service.dispatcher._shell._sessions
        network.swallows = True
        assert clock.eventually(lambda: session.lost and not sessions)
        assert session.lost[0] == "nothing was received for 1 s"
        network.swallows = False
        assert clock.eventually(lambda: len(session.received) > 1)


def test_an_idle_session_stays_open_for_many_timeouts() -> None:
    clock = ManualClock()
    with (
        Service(0, peer_timeout_ms=1_000, clock=clock) as service,
        RecordedSession(service.target.removeprefix("grpc://"), clock) as session,
    ):
        assert eventually(lambda: session.received)
        clock.advance(30.0)
        assert not session.lost
        assert session.opened == 1


def test_a_busy_process_keeps_its_sessions() -> None:
    clock = ManualClock()
    with (
        Service(0, peer_timeout_ms=1_000, clock=clock) as service,
        RecordedSession(service.target.removeprefix("grpc://"), clock) as session,
    ):
        assert eventually(lambda: session.received)
        for seconds in (1.2, 0.6, 2.5):  # the loop of both ends, as if a function held the GIL
            clock.stop_process(seconds)
            clock.advance(0.0)
        clock.advance(1.5)
        assert not session.lost


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has it not")
def test_both_ends_limit_the_time_of_unacknowledged_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[int] = []
    connection_made = WatchedProtocol.connection_made

    def recorded(self: WatchedProtocol, transport: asyncio.BaseTransport) -> None:
        connection_made(self, transport)
        sock = transport.get_extra_info("socket")
        timeouts.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

    monkeypatch.setattr(WatchedProtocol, "connection_made", recorded)
    with Service(0, peer_timeout_ms=7_000) as service:
        rpc.call(service.target.removeprefix("grpc://"), m.GetCluster(), 10, peer_timeout=3.0)
    assert sorted(timeouts) == [3_000, 7_000]


def test_a_call_to_a_silent_server_fails_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"localhost:{listener.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="nothing was received for 1 s"):
            rpc.call(address, m.GetCluster(), 60, peer_timeout=1.0)
        assert time.monotonic() - began < NOTICED_SECONDS


def _hold_the_gil(number: int) -> int:
    sum(range(3 * 10**8))  # one C call of several seconds that holds the GIL
    return number


@pytest.mark.slow
def test_holding_the_gil_beyond_the_timeout_loses_no_task() -> None:
    with DispatchServer(worker_timeout_ms=1_000, peer_timeout_ms=1_000) as dispatcher:
        supervisor = Supervisor(
            WorkerConfig(dispatcher_address=dispatcher.target, peer_timeout_ms=1_000)
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


# ── connections that are reset as soon as they are accepted ──────────────────────────────────────
def test_worker_supervisor_and_client_survive_resets() -> None:
    clock = ManualClock()
    with (
        Service(0, clock=clock) as service,
        Forwarder(service.address[1]) as network,
        ExitStack() as stack,
    ):
        worker = stack.enter_context(WorkerServer(dispatcher_address=network.address, clock=clock))
        supervisor = SupervisorSession(network.address, list, clock=clock)
        supervisor.start()
        stack.callback(supervisor.stop)
        behind = SimpleNamespace(target=network.address, clock=clock)
        endless = stoker.Dataset.range(10).repeat().distribute(behind)
        iterator = stack.enter_context(endless.iterator())
        next(iterator)
        sessions = service.dispatcher._shell._sessions
        assert eventually(lambda: len(sessions) == 3)
        network.resets = True
        network.cut()
        before = network.accepted
        assert clock.eventually(lambda: network.accepted > before + 8)
        network.resets = False
        assert clock.eventually(lambda: len(sessions) == 3)
        assert not worker._ended.is_set()
        assert sorted(read(stoker.Dataset.range(5).distribute(network.address))) == list(range(5))
        for _ in range(1_000):
            next(iterator)


def test_a_call_waits_while_connections_are_reset() -> None:
    with Service(0) as service, Forwarder(service.address[1]) as network:
        network.resets = True
        with pytest.raises(UnavailableError, match="cannot be reached: "):
            rpc.call(network.address, m.GetCluster(), 10)
        replies: list[m.Reply] = []
        calling = threading.Thread(
            target=lambda: replies.append(rpc.call_patiently(network.address, m.GetCluster(), 30))
        )
        calling.start()
        assert eventually(lambda: network.accepted > 4)
        network.resets = False
        calling.join(15)
        assert replies == [m.ClusterReply([])]


def test_a_new_client_and_worker_wait_while_connections_are_reset() -> None:
    with Service(0) as service, Forwarder(service.address[1]) as network, ExitStack() as stack:
        network.resets = True
        got: list[int] = []
        dataset = stoker.Dataset.range(5).distribute(network.address)
        reading = threading.Thread(target=lambda: got.extend(read(dataset, deadline=30)))
        reading.start()
        worker = WorkerServer(dispatcher_address=network.address, start=False)
        starting = threading.Thread(target=worker.start)
        starting.start()
        stack.callback(worker.stop)
        assert eventually(lambda: network.accepted > 6)
        network.resets = False
        for thread in (starting, reading):
            thread.join(20)
        assert sorted(got) == list(range(5))


@pytest.mark.parametrize("stop", [False, True])
def test_a_task_waits_for_its_tree(monkeypatch: pytest.MonkeyPatch, stop: bool) -> None:
    calls: list[bytes] = []
    answer = rpc.send_call

    async def away(address: str, data: bytes, peer_timeout: float) -> bytes:
        calls.append(data)
        if stop or len(calls) <= 3:
            raise ConnectError("Connection refused")
        return await answer(address, data, peer_timeout)

    with Service(1) as service:
        monkeypatch.setattr(rpc, "send_call", away)
        dataset = stoker.Dataset.range(5).distribute(service.target)
        if stop:  # the thread that waits ends too: the leak check sees it
            with dataset.iterator():
                assert eventually(lambda: len(calls) > 2)
                service.workers[0].stop()
        else:
            assert read(dataset) == list(range(5))
