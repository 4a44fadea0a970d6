"""Peers of the dispatcher's port that are no workers or clients, or announce too much."""

import asyncio
import contextlib
import gc
import logging
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import h2.config
import h2.connection
import pytest
from grpclib.protocol import Stream

import stoker
from stoker.errors import UnavailableError, WireError, from_record
from stoker.service import messages as m
from stoker.service.control import receiving, rpc, rpc_server
from stoker.service.control.control_loop import control_loop, run_on
from stoker.service.control.receiving import MAX_HELLO_BYTES, MAX_MESSAGE_BYTES, Receiver
from stoker.service.control.rpc_server import MAX_STREAMS
from tests.manual_clock import ManualClock
from tests.serving import DEADLINE, Service, eventually, read

HEADERS = [
    (":method", "POST"),
    (":path", "PATH"),
    (":scheme", "http"),
    (":authority", "dispatcher"),
    ("te", "trailers"),
    ("content-type", "application/grpc+msgpack"),
]


HELLO = m.WorkerHello(1, 1, "text", {}, m.Versions("3.11", "2"))


def _stream(path: str, data: bytes, *more: tuple[str, str | bytes]) -> bytes:
    config = h2.config.H2Configuration(
        validate_outbound_headers=False, normalize_outbound_headers=False
    )
    client = h2.connection.H2Connection(config)
    client.initiate_connection()
    headers = [
        (name, value.replace("PATH", path)) for name, value in HEADERS if path or name != ":path"
    ]
    client.send_headers(1, [*headers, *more])
    client.send_data(1, data)
    return bytes(client.data_to_send())


def _claims(size: int, data: bytes = b"") -> bytes:
    return struct.pack(">?I", False, size) + data


def _no_utf8(message: m.ToDispatcher | m.Request) -> bytes:
    """Return a message whose text "text" is no UTF-8."""
    data = rpc.encode(message).replace(b"text", b"\xff\xff\xff\xff")
    return _claims(len(data), data)


BAD = {
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: dispatcher\r\n\r\n",
    "zeros": bytes(1 << 16),
    "garbage in a session": _stream(rpc.SESSION, _claims(4, b"\xc1\xff\xc1\xff")),
    "garbage in a call": _stream(rpc.CALL, _claims(4, b"\xc1\xff\xc1\xff")),
    "no UTF-8 in a session": _stream(rpc.SESSION, _no_utf8(HELLO)),
    "no UTF-8 in a call": _stream(rpc.CALL, _no_utf8(m.CancelJob("text"))),
    "a hello of 4 GiB": _stream(rpc.SESSION, _claims(2**32 - 1)),
    "a hello that is too long": _stream(rpc.SESSION, _claims(MAX_HELLO_BYTES + 1)),
    "a call of 4 GiB": _stream(rpc.CALL, _claims(2**32 - 1)),
    "a request without a path": _stream("", _claims(1, b"a")),
    "a header that is no text": _stream(rpc.CALL, _claims(1, b"a"), ("x", b"\xff\xff")),
    "a compressed message": _stream(rpc.CALL, b"\x01\0\0\0\x01a"),
}


@pytest.fixture
def service(caplog: pytest.LogCaptureFixture) -> Iterator[Service]:
    caplog.set_level(logging.DEBUG, "stoker.dispatcher")
    with Service(1) as running:
        yield running


def _send(service: Service, data: bytes) -> None:
    """Send bytes to the dispatcher, and wait until it has read them."""
    with socket.create_connection(service.address) as peer, contextlib.suppress(OSError):
        peer.settimeout(DEADLINE)
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(65536):
            pass


def _lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


FOREIGN = {"HTTP/1.1", "zeros", "a request without a path", "a header that is no text"}
"""Bytes of which nothing is of stoker's protocol."""


def _closed(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in _lines(caplog, logging.DEBUG) if "is closed" in line]


@pytest.mark.parametrize("name", BAD)
def test_bad_bytes_are_one_debug_line_and_a_warning_unless_foreign(
    service: Service, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    _send(service, BAD[name])
    assert eventually(lambda: _closed(caplog))
    [line] = _closed(caplog)
    assert _lines(caplog, logging.WARNING) == [line] * (name not in FOREIGN)
    assert _lines(caplog, logging.ERROR) == []
    assert read(stoker.Dataset.range(3).distribute(service.target)) == [0, 1, 2]


def test_a_port_scan_is_one_warning_and_no_noise_of_asyncio(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    partial = [data[: len(data) // 2] for data in BAD.values()]
    for data in [*BAD.values(), *partial, b"", *map(os.urandom, [20, 2000, 200_000])]:
        _send(service, data)
    assert read(stoker.Dataset.range(3).distribute(service.target)) == [0, 1, 2]
    gc.collect()
    assert len(_lines(caplog, logging.WARNING)) == 1
    assert _lines(caplog, logging.ERROR) == []


def test_a_silent_session_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "stoker.dispatcher")
    clock = ManualClock()
    with (
        Service(0, clock=clock, peer_timeout_ms=600_000) as service,  # the peer answers no ping
        socket.create_connection(service.address) as peer,
    ):
        peer.sendall(_stream(rpc.SESSION, b"\0"))
        assert clock.eventually(lambda: "no whole message in time" in caplog.text)


def test_a_stranger_cannot_hold_many_connections(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell: Any = service.dispatcher._shell
    monkeypatch.setattr(shell.server.pending, "_limit", 5)
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(20):
            held.append(stack.enter_context(socket.create_connection(service.address)))
            held[-1].setblocking(False)
        assert eventually(lambda: sum(map(_is_closed, held)) == 15)
        assert read(stoker.Dataset.range(3).distribute(service.target)) == [0, 1, 2]
        assert service.dispatcher.num_workers() == 1
    assert "have no session either" in _closed(caplog)[0]


def _is_closed(peer: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        try:
            while peer.recv(65536):
                pass
        except BlockingIOError:
            return False
    return True


def test_a_connection_has_few_streams(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    client = h2.connection.H2Connection()
    client.initiate_connection()
    headers = [(name, value.replace("PATH", rpc.SESSION)) for name, value in HEADERS]
    for _ in range(MAX_STREAMS + 1):
        client.send_headers(client.get_next_available_stream_id(), headers)
    with socket.create_connection(service.address) as peer, contextlib.suppress(OSError):
        peer.sendall(client.data_to_send())
        assert eventually(lambda: _closed(caplog))
    assert "more than 8 sessions and calls" in _closed(caplog)[0]


class _Source(Stream):
    """A stream with these bytes, which then stalls."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def recv_data(self, size: int) -> bytes:
        if len(self._data) < size:
            await asyncio.sleep(3600)
        data, self._data = self._data[:size], self._data[size:]
        return data


def test_a_long_message_arrives_whole() -> None:
    data = os.urandom((5 << 20) + 3)
    receiver = Receiver()
    found = asyncio.run(receiver.receive(_Source(_claims(len(data), data)), MAX_MESSAGE_BYTES))
    assert found == data
    assert receiver.pending_bytes == 0


def test_messages_that_arrive_in_part_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving, "MAX_PENDING_BYTES", 10 << 20)

    async def receive_many() -> list[Any]:
        receiver = Receiver()
        held = [_Source(_claims(1 << 30, bytes(4 << 20))) for _ in range(5)]
        tasks = [asyncio.ensure_future(receiver.receive(x, MAX_MESSAGE_BYTES)) for x in held]
        refused, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        while len(refused) < 3:
            refused, _ = await asyncio.wait(tasks, timeout=0.01)
        assert receiver.pending_bytes <= 10 << 20
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert receiver.pending_bytes == 0
        return ended

    ended = asyncio.run(receive_many())
    assert sum(isinstance(error, UnavailableError) for error in ended) >= 3


def test_a_message_that_stalls_is_given_up() -> None:
    clock = ManualClock()
    source = _Source(_claims(5 << 20, bytes(3 << 20)))
    with (
        clock.running(),
        asyncio.Runner(loop_factory=clock.new_event_loop) as runner,
        pytest.raises(UnavailableError, match="3145728 of 5242880 bytes"),
    ):
        runner.run(Receiver().receive(source, MAX_MESSAGE_BYTES))


def test_a_message_over_the_limit_is_refused_before_it_arrives() -> None:
    with pytest.raises(WireError, match="of 11 bytes, more than 10"):
        asyncio.run(Receiver().receive(_Source(_claims(11)), 10))


def test_a_refused_call_gets_the_error(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_server, "MAX_MESSAGE_BYTES", 5)
    with pytest.raises(WireError, match="more than 5 allowed"):
        rpc.call(service.target.removeprefix("grpc://"), m.GetDataset("some name"), DEADLINE)


def test_text_that_is_no_utf8_is_refused() -> None:
    with Service(0) as service:
        address = service.target.removeprefix("grpc://")
        with pytest.raises(WireError, match=r"not a request: .utf-8. codec"):
            _call_bytes(address, rpc.encode(m.CancelJob("text")).replace(b"text", b"\xff" * 4))


def _call_bytes(address: str, data: bytes) -> None:
    loop = control_loop()
    running = loop.acquire()
    try:
        reply = rpc.decode_reply(run_on(running, rpc.send_call(address, data, DEADLINE), DEADLINE))
    finally:
        loop.release()
    assert isinstance(reply, m.Failed)
    raise from_record(reply.error)
