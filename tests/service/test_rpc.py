import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import InvalidArgumentError, NotFoundError, UnavailableError
from stoker.service import messages as m
from stoker.service import rpc
from stoker.service.config import ShardingPolicy
from tests.serving import Service, eventually, free_port

EVERY_MESSAGE = [
    m.WorkerHello(1, 2, "h:1", {"tcp": "h:2"}, m.Versions("3.11", "2"), ["t"], 5, "j", [1]),
    m.Heartbeat(),
    m.SplitRequest(1, 2, 3, [4, 5], 6),
    m.SplitsListed(1, {0: ["a", "b"]}),
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
]


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda message: type(message).__name__)
def test_messages_to_the_dispatcher_survive_encoding(message):
    assert rpc.decode_to_dispatcher(rpc.encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        m.WorkerWelcome(1, 2, "j", 1000),
        m.TaskStart(1, 2, "d", 2**62, (0, 3), [m.SplitSource(0, 5, 50), m.SplitSource(1, 2)]),
        m.TaskStop(1),
        m.ListSplits(1, "d", 5, (0,), [0]),
        m.SplitGrant(1, 2, 3, [4], [5], [(6, [0, 10])], True),
        m.ClientReleased(1, 2),
        m.ClientWelcome(1, 2, 3, "j", 1000, "careful"),
        m.DatasetUnknown(),
        m.DispatcherStopped(),
        m.Tasks(
            [m.TaskInfo(1, "h:1", {"tcp": "h:1"})],
            [m.TaskLost(2, "h:2", "it was stopped", 3, 4)],
            [m.ElementsDropped(1, "h:1", 5)],
            True,
            True,
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
        m.SplitsListed(1, {0: ["\ud800"]}),
        m.SplitsListed(1, {0: [object()]}),
    ],
    ids=["int", "text", "object"],
)
def test_message_that_cannot_be_encoded_is_one_error(message):
    with pytest.raises(InvalidArgumentError, match=f"{type(message).__name__} message cannot be"):
        rpc.encode(message)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's tcp_info")
def test_dispatcher_has_the_whole_backlog():
    with Service(0) as service:
        server: Any = service.dispatcher._shell.server._server._server
        [sock] = server.sockets
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    (longest,) = struct.unpack_from("I", info, 28)  # tcpi_sacked of a listening socket
    somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
    assert longest == min(rpc.BACKLOG, somaxconn) > 100


def test_call_returns_the_reply_or_raises_the_error():
    with Service(2) as service:
        address = service.target.removeprefix("grpc://")
        reply = rpc.call(address, m.GetCluster(), 5)
        assert isinstance(reply, m.ClusterReply)
        assert sorted(reply.workers) == sorted(worker.address for worker in service.workers)
        with pytest.raises(NotFoundError, match="Dataset id X not found"):
            rpc.call(address, m.GetDataset("X"), 5)


def test_call_without_a_dispatcher_is_unavailable():
    address = f"localhost:{free_port()}"
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
    port = free_port()
    opened: list[int] = []
    lost = threading.Event()
    with Service(0, port=port):
        session = rpc.Session(
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


def test_session_without_a_dispatcher_closes_immediately():
    session = rpc.Session(
        f"localhost:{free_port()}", lambda: None, lambda _: None, lambda: None, lambda: None
    )
    session.close()
    session.close()
