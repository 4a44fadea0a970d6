import asyncio
import random
import socket
import struct
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from grpclib.server import Server as GrpcServer

import stoker
from stoker.errors import (
    ErrorRecord,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from stoker.service import WorkerServer
from stoker.service import messages as m
from stoker.service.control import rpc, rpc_session
from stoker.service.control.control_connection import ConnectError, ControlChannel
from stoker.service.control.control_loop import control_loop, run_on
from stoker.service.control.rpc_server import BACKLOG
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.manual_clock import ManualClock
from tests.serving import Service, eventually, read

EVERY_MESSAGE = [
    m.WorkerHello(1, 2, "h:1", {"tcp": "h:2"}, m.Versions("3.11", "2"), ["t"], 5, "j", [1]),
    m.Heartbeat(),
    m.SplitRequest(1, 2, 3, [4, 5], 6),
    m.SplitsPage(1, 0, 0, 2, msgspec.Raw(rpc.encode(["a", "b"]))),
    m.ListingFailed(1, ErrorRecord("OSError", "no")),
    m.TaskProgress(1, exhausted=True),
    m.WorkerLeave(),
    m.ClientHello(1, 1, "d", "j", m.JobParameters(ShardingPolicy.OFF), (0, 1), True, "p", 3, "j"),
    m.ClientHello(
        1,
        1,
        "",
        "j",
        m.JobParameters(ShardingPolicy.OFF),
        (0,),
        registration=m.RegisterDataset("x", b"tree"),
    ),
    m.ClientClose(),
    m.RoundReached(7, m.RoundPosition(3, [20], {20: 3}, 3), {21: 2}, 1),
]


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda message: type(message).__name__)
def test_messages_to_the_dispatcher_survive_encoding(message):
    assert rpc.decode_to_dispatcher(rpc.encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        m.WorkerWelcome(1, 2, "j", 1000),
        m.TaskStart(
            1,
            2,
            "d",
            2**62,
            (0, 3),
            m.SplitTask(sources=[m.SplitSource(0, 5, 50), m.SplitSource(1, 2)]),
        ),
        m.TaskStop(1),
        m.ListSplits(1, "d", 5, (0,), 0, 10_000),
        m.StopListing(1),
        m.SplitGrant(1, 2, 3, [4], [5], [(6, [0, 10])], True),
        m.ClientReleased(1, 2),
        m.ClientWelcome(1, 2, 3, "j", 1000, "careful"),
        m.DatasetUnknown(),
        m.DispatcherStopped(),
        m.Rounds([m.RoundsChange(1, m.RoundPosition(3, [20], {20: 3}, 3), 2)], 7, [21]),
        m.Tasks(
            [m.TaskInfo(1, "h:1", {"tcp": "h:1"}, [], 7)],
            {3: 7},
            [m.TaskLost(2, "h:2", "it was stopped", 3, 4)],
            [m.ElementsDropped(1, "h:1", 5)],
            True,
            True,
            "careful",
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_of_the_dispatcher_survive_encoding(message):
    found = rpc.decode_from_dispatcher(rpc.encode(message))
    assert rpc.encode(found) == rpc.encode(message)
    assert type(found) is type(message)


@pytest.mark.parametrize(
    "message",
    [
        m.TaskRead(2**70),
        m.SplitGrant(1, 0, 0, splits=[(0, "\ud800")]),
        m.SplitGrant(1, 0, 0, splits=[(0, object())]),
    ],
    ids=["int", "text", "object"],
)
def test_message_that_cannot_be_encoded_is_one_error(message):
    with pytest.raises(InvalidArgumentError, match=f"{type(message).__name__} message cannot be"):
        rpc.encode(message)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's tcp_info")
def test_dispatcher_has_the_whole_backlog():
    with Service(0) as service:
        server: Any = service.dispatcher._shell.server._server
        [sock] = server.sockets
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    (longest,) = struct.unpack_from("I", info, 28)  # tcpi_sacked of a listening socket
    somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
    assert longest == min(BACKLOG, somaxconn) > 100


def test_call_returns_the_reply_or_raises_the_error():
    with Service(2) as service:
        address = service.target.removeprefix("grpc://")
        reply = rpc.call(address, m.GetCluster(), 5)
        assert isinstance(reply, m.ClusterReply)
        assert sorted(reply.workers) == sorted(worker.address for worker in service.workers)
        with pytest.raises(NotFoundError, match="Dataset id X not found"):
            rpc.call(address, m.GetDataset("X"), 5)


def test_call_without_a_dispatcher_is_unavailable(closed_port):
    address = f"localhost:{closed_port}"
    with pytest.raises(UnavailableError, match=f"{address} cannot be reached"):
        rpc.call(address, m.GetCluster(), 5)


def test_registration_of_invalid_bytes_is_refused():
    with Service(0) as service:
        address = service.target.removeprefix("grpc://")
        for tree in (b"garbage", b"\x90", b"\xc1"):
            with pytest.raises(InvalidArgumentError, match="not a dataset"):
                rpc.call(address, m.RegisterDataset(digest="x", tree=tree), 5)
        assert not service.state.datasets


def test_concurrent_calls_are_all_answered():
    with Service(0) as service:
        address = service.target.removeprefix("grpc://")
        replies: list[m.Reply] = []

        def call_repeatedly() -> None:
            replies.extend(rpc.call(address, m.GetCluster(), 10) for _ in range(5))

        threads = [threading.Thread(target=call_repeatedly) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(replies) == 40


def test_session_reconnects_to_a_restarted_dispatcher():
    opened: list[int] = []
    lost = threading.Event()
    with Service(0) as first:
        port = first.address[1]
        session = rpc_session.Session(
            f"localhost:{port}", lambda: opened.append(1), lambda _: None, lost.set, lambda: None
        )
        try:
            assert eventually(lambda: opened)
        except BaseException:
            session.close()
            raise
    try:
        assert eventually(lost.is_set)
        with Service(0, port=port):
            assert eventually(lambda: len(opened) == 2)
    finally:
        session.close()


def test_retries_leave_the_global_generator_alone(closed_port):
    before = random.getstate()
    failures: list[None] = []
    session = rpc_session.Session(
        f"localhost:{closed_port}",
        lambda: None,
        lambda _: None,
        lambda: failures.append(None),
        lambda: None,
    )
    try:
        assert eventually(lambda: len(failures) > 2)
    finally:
        session.close()
    assert random.getstate() == before


def test_session_without_a_dispatcher_closes_immediately(closed_port):
    session = rpc_session.Session(
        f"localhost:{closed_port}", lambda: None, lambda _: None, lambda: None, lambda: None
    )
    session.close()
    session.close()


def _counted_calls(monkeypatch, failures: int) -> list[bytes]:
    """Record the farewells of sessions, the first of which fail."""
    calls: list[bytes] = []
    ask = rpc.ask

    async def counted(address, data, peer_timeout):
        calls.append(data)
        if len(calls) <= failures:
            raise ConnectError("Connection refused")
        return await ask(address, data, peer_timeout)

    monkeypatch.setattr(rpc_session, "ask", counted)
    return calls


FAREWELL = m.CloseClient(1, "journal", b"")


def test_broken_session_says_farewell_by_a_call(monkeypatch):
    with Service(0) as first:
        port = first.address[1]
    calls = _counted_calls(monkeypatch, failures=2)
    session = rpc_session.Session(
        f"localhost:{port}", lambda: None, lambda _: None, lambda: None, lambda: None
    )
    closing = threading.Thread(target=session.close, args=(20.0, FAREWELL))
    closing.start()
    assert eventually(lambda: calls)
    with Service(0, port=port):
        closing.join(10)
        assert not closing.is_alive()
    assert set(calls) == {rpc.encode(FAREWELL)}
    assert len(calls) >= 3


def test_client_whose_last_message_arrives_makes_no_call(monkeypatch):
    calls = _counted_calls(monkeypatch, failures=0)
    with Service(1) as service:
        dataset = stoker.Dataset.range(100).distribute(service.target)
        for _ in range(5):
            with dataset.iterator() as iterator:
                next(iterator)
            assert eventually(lambda: not service.state.clients)
    assert calls == []


def test_farewell_without_a_dispatcher_ends_in_time(monkeypatch, closed_port):
    calls = _counted_calls(monkeypatch, failures=1 << 30)
    session = rpc_session.Session(
        f"localhost:{closed_port}", lambda: None, lambda _: None, lambda: None, lambda: None
    )
    began = time.monotonic()
    session.close(0.3, FAREWELL)
    assert time.monotonic() - began < 5
    assert calls


def test_session_survives_connections_lost_while_they_open(monkeypatch):
    lost_at_once = [True] * 3
    connect = ControlChannel.__connect__

    async def connect_and_lose(self):
        protocol = await connect(self)
        if lost_at_once:
            lost_at_once.pop()
            protocol._transport.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return protocol

    monkeypatch.setattr(ControlChannel, "__connect__", connect_and_lose)
    opened = threading.Event()
    failures: list[Exception] = []
    with Service(0) as service:
        address = service.target.removeprefix("grpc://")
        session = rpc_session.Session(
            address, opened.set, lambda _: None, lambda: None, lambda: None, failures.append
        )
        try:
            assert eventually(opened.is_set)
        finally:
            session.close()
    assert not lost_at_once
    assert not failures


# ── exceptions of callbacks ──────────────────────────────────────────────────────────────────────
@contextmanager
def session_with(broken: str, failed=None):
    """Open a session, one of whose callbacks raises; yield the calls of all."""
    calls: list[str] = []

    def callback(name):
        def call(*_):
            if name != "tick" or not calls.count(name):
                calls.append(name)
            if name == "opened":
                ready.wait(5)
                session.send(m.SupervisorHello(m.PROTOCOL_MIN, m.PROTOCOL_MAX))
            if name == broken:
                raise RuntimeError("can't start new thread")

        return call

    ready = threading.Event()
    with Service(0) as service:
        address = service.target.removeprefix("grpc://")
        opened, received, lost, tick = map(callback, ("opened", "received", "lost", "tick"))
        session = rpc_session.Session(address, opened, received, lost, tick, failed)
        ready.set()
        try:
            yield calls, service
        finally:
            session.close()


@pytest.mark.parametrize("broken", ["opened", "received", "lost", "tick"])
def test_exception_of_a_callback_ends_the_session(broken, caplog):
    failures: list[Exception] = []
    with session_with(broken, failures.append) as (_, service):
        if broken == "lost":
            assert eventually(lambda: service.dispatcher._shell._sessions)
            service.dispatcher.stop()
        assert eventually(lambda: failures)
        if broken != "lost":
            assert eventually(lambda: not service.dispatcher._shell._sessions)
    [failure] = failures
    assert str(failure) == "can't start new thread"
    assert any(record.exc_info for record in caplog.records), "no traceback"


@pytest.mark.parametrize("broken", ["opened", "received", "tick"])
def test_session_without_failed_goes_on_after_exceptions(broken, caplog):
    with session_with(broken) as (calls, service):
        assert eventually(lambda: {"opened", "received", "tick"} <= set(calls))
        assert eventually(lambda: service.dispatcher._shell._sessions)
    assert "lost" not in calls
    assert any(record.exc_info for record in caplog.records), "no traceback"


# ── servers that are no dispatchers ──────────────────────────────────────────────────────────────
@contextmanager
def server_that_answers(answer: bytes):
    """Serve `answer` to each connection, and then close it; yield the address."""
    stopping = threading.Event()

    def serve() -> None:
        while not stopping.is_set():
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                continue
            with peer:
                peer.sendall(answer)
                peer.shutdown(socket.SHUT_WR)
                with suppress(OSError):
                    while peer.recv(65536):  # a close before would reset the connection
                        continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"localhost:{listener.getsockname()[1]}"
        finally:
            stopping.set()
            thread.join()


HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
SPEAKS_HTTP = (
    r"the server at localhost:\d+ does not speak stoker's protocol: it answered b'HTTP/1.1"
)


@pytest.mark.parametrize("answer", [HTTP, b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x01\x00\x02\x02"])
def test_call_to_another_server_says_so(answer):
    with (
        server_that_answers(answer) as address,
        pytest.raises(FailedPreconditionError, match="does not speak stoker's protocol"),
    ):
        rpc.call(address, m.GetCluster(), 5)


def test_patient_call_gives_up_on_another_server():
    with (
        server_that_answers(HTTP) as address,
        pytest.raises(FailedPreconditionError, match=SPEAKS_HTTP),
    ):
        rpc.call_patiently(address, m.GetCluster(), 60)


def test_reader_of_another_server_fails_in_seconds():
    with server_that_answers(HTTP) as address:
        dataset = stoker.Dataset.range(3).distribute(address)
        with pytest.raises(FailedPreconditionError, match=SPEAKS_HTTP):
            read(dataset)


def test_worker_of_another_server_fails_in_seconds():
    with (
        server_that_answers(HTTP) as address,
        pytest.raises(FailedPreconditionError, match=SPEAKS_HTTP),
    ):
        WorkerServer(dispatcher_address=address)


class _OtherService:
    def __mapping__(self):
        return {}


def test_grpc_server_of_another_service_is_named():
    control = control_loop()
    loop = control.acquire()

    async def start() -> GrpcServer:
        server = GrpcServer([_OtherService()])
        await server.start(sock=listener)
        return server

    async def stop() -> None:
        server.close()
        await server.wait_closed()

    listener = socket.create_server(("127.0.0.1", 0))
    server = run_on(loop, start(), 5)
    try:
        with pytest.raises(FailedPreconditionError, match="does not speak stoker's protocol"):
            rpc.call(f"localhost:{listener.getsockname()[1]}", m.GetCluster(), 5)
    finally:
        run_on(loop, stop(), 5)
        control.release()


UNRESOLVABLE = "no-such-host.invalid:5050"


def test_unresolvable_host_is_named():
    with pytest.raises(UnavailableError, match=r"host 'no-such-host\.invalid' cannot be resolved"):
        rpc.call(UNRESOLVABLE, m.GetCluster(), 20)
    dataset = stoker.Dataset.range(3).distribute(UNRESOLVABLE, connect_timeout=0.5)
    with pytest.raises(
        UnavailableError,
        match=r"no dispatcher answered.*'no-such-host\.invalid' cannot be resolved",
    ):
        read(dataset, deadline=30)
    with pytest.raises(UnavailableError, match=r"'no-such-host\.invalid' cannot be resolved"):
        WorkerServer(
            dispatcher_address=UNRESOLVABLE, host="0.0.0.0", insecure=True, dispatcher_timeout_ms=1
        )


def test_refused_connection_is_the_reason_of_a_failed_wait(closed_port):
    address = f"localhost:{closed_port}"
    with pytest.raises(
        UnavailableError, match=f"no dispatcher answered at {address} within .* s .Connection refus"
    ):
        rpc.call_patiently(address, m.GetCluster(), 0.3)


def test_warnings_name_the_reason(caplog, closed_port):
    address = f"localhost:{closed_port}"
    service = SimpleNamespace(target=address, clock=ManualClock())
    dataset = stoker.Dataset.range(3).distribute(service, connect_timeout=11)
    with service.clock.running(), pytest.raises(UnavailableError, match="Connection refused"):
        read(dataset)
    [warning, *_] = [record.getMessage() for record in caplog.records]
    assert f"waiting for the dispatcher at {address} (Connection refused)" in warning


def test_patient_call_waits_for_the_successor_of_a_stopping_dispatcher(monkeypatch):
    replies = [
        m.Failed(ErrorRecord("UnavailableError", "the dispatcher stops")),
        m.ClusterReply(["a"]),
    ]

    async def send_call(*_: object) -> bytes:
        return rpc.encode(replies.pop(0))

    monkeypatch.setattr(rpc, "send_call", send_call)
    assert rpc.call_patiently("localhost:1", m.GetCluster(), 60.0) == m.ClusterReply(["a"])


def test_a_call_in_flight_ends_with_the_server(monkeypatch):
    """The caller and the server are one process, so that its end closes no connection."""
    waiting = threading.Event()

    async def never(self: Any, data: bytes) -> bytes:
        waiting.set()
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("stoker.service.dispatcher.server._Shell.answer", never)
    errors: list[Exception] = []
    with Service(0) as service:

        def call() -> None:
            try:
                rpc.call(service.target.removeprefix("grpc://"), m.GetCluster(), 60.0)
            except UnavailableError as error:
                errors.append(error)

        calling = threading.Thread(target=call)
        calling.start()
        assert waiting.wait(10)
    calling.join(10)
    assert not calling.is_alive()
    assert "cannot be reached" in str(errors[0])
