"""Connections from peers that are no clients: a worker closes each with one line of log."""

import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import h2.connection
import pytest

import stoker
from stoker.elements.codec.layout import Buffer
from stoker.wire import frames
from stoker.wire.frames import PREFIX, Hello
from stoker.wire.transports import GRPC_PATH, get_transport
from stoker.wire.transports.shm import envelope
from tests.serving import (
    DEADLINE,
    Service,
    eventually,
    iterator_with_deadline,
    read,
    worker_fields_for,
)

TRANSPORTS = ("tcp", "shm", "grpc")
HELLO = frames.encode(Hello(1, 1, 5, 6, 0))[0]

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", GRPC_PATH),
    (":authority", "worker"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


def _as_tcp(message: Buffer) -> bytes:
    return bytes(message)


def _as_shm(message: Buffer) -> bytes:
    """Return the header of `message` in an envelope whose part has the size the body claims."""
    _, header, body = PREFIX.unpack_from(message)
    parts = (envelope.Part(body),) if body else ()
    sent = bytes(message)[PREFIX.size :]
    whole = envelope.pack(envelope.Envelope(envelope.EnvelopeKind.MESSAGE, sent, parts))
    # The size that the header claims is a part of the size in the envelope's prefix.
    claimed = min(len(whole) - envelope.PREFIX.size - len(sent) + header, 2**32 - 1)
    prefix = whole[: envelope.PREFIX.size - 4] + claimed.to_bytes(4, "little")
    return prefix + whole[envelope.PREFIX.size :]


def _as_grpc(message: Buffer) -> bytes:
    """Return a call with `message` in it."""
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.send_headers(1, REQUEST)
    client.send_data(1, b"\0" + len(message).to_bytes(4) + bytes(message))
    return bytes(client.data_to_send())


BYTES: dict[str, Callable[[Buffer], bytes]] = {
    "tcp": _as_tcp,
    "shm": _as_shm,
    "grpc": _as_grpc,
}


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    if request.param == "shm" and sys.platform != "linux":
        pytest.skip("shared memory is Linux's")
    return str(request.param)


@pytest.fixture
def service(transport: str) -> Iterator[Service]:
    with Service(1, worker=worker_fields_for(transport)) as running:
        yield running


@pytest.fixture(autouse=True)
def reading(service: Service, transport: str) -> Iterator[None]:
    """Another client, which reads all the while and must notice nothing."""
    dataset = (
        stoker.Dataset.range(1_000)  # its passes are what costs CPU time
        .repeat()
        .distribute(service.target, data_transfer_protocol=transport)
    )
    with iterator_with_deadline(dataset, 2 * DEADLINE) as iterator:
        next(iterator)
        yield
        for _ in range(10_000):
            next(iterator)


def _addresses(service: Service) -> dict[str, str]:
    [worker] = service.workers
    addresses: dict[str, str] = worker._shell._listeners.data_transfer_addresses  # type: ignore[union-attr]
    return addresses


@contextlib.contextmanager
def _plain(service: Service, transport: str) -> Iterator[socket.socket]:
    """A socket connected to where a worker serves by `transport`."""
    address = _addresses(service)[transport]
    if transport == "shm":
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.connect(b"\0" + address[1:].encode())
    else:
        host, _, port = address.rpartition(":")
        peer = socket.create_connection((host, int(port)))
    peer.settimeout(DEADLINE)
    with peer:
        yield peer


def _reaches_worker(transport: str, data: bytes) -> bool:
    """Return whether `data` opens a connection; gRPC silently drops a client without a call."""
    data_frame = 9 + 5 + len(HELLO)  # the prefixes of HTTP/2 and gRPC, and the message
    return transport != "grpc" or len(data) >= len(_as_grpc(HELLO)) - data_frame


def _ends(peer: socket.socket, transport: str = "") -> bool:
    """Return whether the other side ends the connection, or the call in a connection of "grpc"."""
    received = b""
    try:
        while data := peer.recv(65536):
            received += data
            if transport == "grpc" and _call_ended(received):
                return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def _wait_accepted(peer: socket.socket) -> None:
    """Receive until the call on `peer` is answered."""
    received = b""
    while not _frames_of_call(received):
        received += peer.recv(65536)


def _call_ended(received: bytes) -> bool:
    """Return whether `received` ends the call: by RST_STREAM, or by HEADERS that are the last."""
    return any(kind == 3 or (kind == 1 and flags & 1) for kind, flags in _frames_of_call(received))


def _frames_of_call(received: bytes) -> list[tuple[int, int]]:
    """Return kind and flags of the HTTP/2 frames of stream 1."""
    found = []
    while len(received) >= 9:
        size, kind, flags = int.from_bytes(received[:3]), received[3], received[4]
        if int.from_bytes(received[5:9]) == 1:
            found.append((kind, flags))
        received = received[9 + size :]
    return found


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def _debug_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record for record in caplog.records if record.levelno == logging.DEBUG]
    return [line for record in lines if "is closed" in (line := record.getMessage())]


def _one_line(caplog: pytest.LogCaptureFixture, *words: str, warns: bool = False) -> bool:
    """Return whether one line names the close and one of `words`, as a warning or at DEBUG only."""
    assert eventually(lambda: _debug_lines(caplog))
    [line] = _debug_lines(caplog)
    assert _warnings(caplog) == [line] * warns
    return any(word in line for word in words)


@pytest.fixture(autouse=True)
def _log_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "stoker.worker")


def _still_serves(service: Service, transport: str) -> bool:
    dataset = stoker.Dataset.range(5)
    distributed = dataset.distribute(service.target, data_transfer_protocol=transport)
    return read(distributed) == [0, 1, 2, 3, 4]


def _claims(header: int, body: int) -> bytes:
    return PREFIX.pack(b"stk1", header, body)


BAD: dict[str, Buffer] = {
    "a header that claims 2^32 bytes": _claims(2**32 - 1, 0),
    "a body that claims 2^60 bytes": _claims(2, 2**60) + b"\xc1\xc1",
    "a header of garbage": _claims(4, 0) + b"\xff\xc1\xff\xc1",
    "a message that is no hello": frames.encode(frames.Credit(0, 1, 1))[0],
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_hello_ends_its_connection_with_one_line(
    service: Service, transport: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with _plain(service, transport) as peer:
        peer.sendall(BYTES[transport](BAD[name]))
        assert _ends(peer, transport)
    warns = name == "a message that is no hello"
    assert _one_line(caplog, "is not a message", "expected Hello", warns=warns)
    assert _still_serves(service, transport)


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n", bytes(1 << 16), b"\xff" * (1 << 16)]
)
def test_garbage_ends_its_connection_without_a_warning(
    service: Service, transport: str, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with _plain(service, transport) as peer:
        with contextlib.suppress(ConnectionError):
            peer.sendall(garbage)
        assert _ends(peer)
    if _reaches_worker(transport, b""):
        assert _one_line(caplog, "is not a message", "does not speak")
    else:
        assert _warnings(caplog) == []


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_half_a_hello_and_a_hang_up_ends_without_a_warning(
    service: Service, transport: str, part: float, caplog: pytest.LogCaptureFixture
) -> None:
    with _plain(service, transport) as peer:
        whole = BYTES[transport](HELLO)
        half = whole[: int(part * len(whole))]
        peer.sendall(half)
        if transport == "grpc" and _reaches_worker(transport, half):
            _wait_accepted(peer)  # gRPC's core may drop a call whose client hangs up before
    if _reaches_worker(transport, half):
        assert _one_line(caplog, "disconnected")
    else:
        assert _still_serves(service, transport)
        assert _warnings(caplog) == []


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_silence_ends_its_connection_without_a_warning(
    service: Service,
    transport: str,
    part: float,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stoker.service.worker.readers.data_connections.HELLO_SECONDS", 0.05)
    whole = BYTES[transport](HELLO)
    half = whole[: int(part * len(whole))]
    if not _reaches_worker(transport, half):
        half = whole[: -len(HELLO)]  # a call; before it, gRPC's own timeouts count
    with _plain(service, transport) as peer:
        peer.sendall(half)
        assert _ends(peer, transport)
    assert _one_line(caplog, "no whole message in time")


def test_another_protocol_version_gets_an_error_and_one_line(
    service: Service, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = get_transport(transport).connect(_addresses(service)[transport], 5)
    connection.send(Hello(98, 99, 5, 6, 0))
    answer = connection.receive(5)
    connection.close()
    assert isinstance(answer, frames.Bye)
    assert answer.error is not None
    assert "98 to 99" in answer.error.message
    assert _one_line(caplog, "98 to 99", warns=True)


def test_many_concurrent_bad_connections_leave_a_worker_serving(
    service: Service, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    def annoy() -> None:
        for data in (b"\xff" * 5000, *map(BYTES[transport], BAD.values())):
            with _plain(service, transport) as peer, contextlib.suppress(ConnectionError):
                peer.sendall(data)
                _ends(peer, transport)

    threads = [threading.Thread(target=annoy) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    expected = len(threads) * (_reaches_worker(transport, b"") + len(BAD))
    assert eventually(lambda: len(_debug_lines(caplog)) == expected)
    assert len(_warnings(caplog)) == 1
    assert _still_serves(service, transport)
