"""What a worker does with connections on which no client speaks: each transport, one line each."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

import stoker
from stoker.elements.codec.layout import Buffer
from stoker.wire import frames
from stoker.wire.frames import PREFIX, Hello
from stoker.wire.transports import get_transport
from stoker.wire.transports.grpc import GRPC, http2
from stoker.wire.transports.grpc.call import PATH
from stoker.wire.transports.shm import envelope
from tests.serving import DEADLINE, Service, eventually, read, watched

TRANSPORTS = ("tcp", "shm", "grpc")
HELLO = frames.encode(Hello(1, 1, 5, 6, 0))[0]

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    (":authority", "worker"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


def _as_tcp(message: Buffer) -> bytes:
    return bytes(message)


def _as_shm(message: Buffer) -> bytes:
    """The header of `message` in an envelope; what a body claims, as the size of its part."""
    _, header, body = PREFIX.unpack_from(message)
    parts = (envelope.Part(body),) if body else ()
    whole = envelope.pack(
        envelope.Envelope(envelope.Kind.MESSAGE, bytes(message)[PREFIX.size :], parts)
    )
    # What a header claims of itself is said in the envelope's prefix.
    return whole[: envelope.PREFIX.size - 4] + header.to_bytes(4, "little") + whole[16 + 4 :]


def _as_grpc(message: Buffer) -> bytes:
    call = http2.HeaderCodec().encode(1, REQUEST)
    data = http2.MESSAGE_PREFIX.pack(0, len(message)) + bytes(message)
    frame = http2.frame(http2.DATA, 0, 1, data)
    return http2.PREFACE + http2.settings({}) + call + frame


BYTES: dict[str, Callable[[Buffer], bytes]] = {
    "tcp": _as_tcp,
    "shm": _as_shm,
    "grpc": _as_grpc,
}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(1) as running:
        yield running


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, service: Service) -> str:
    if request.param not in _addresses(service):
        pytest.skip(f"no {request.param} here")
    return str(request.param)


@pytest.fixture(autouse=True)
def reading(service: Service) -> Iterator[None]:
    """Another client, which reads all the while and must notice nothing."""
    dataset = stoker.Dataset.range(10).repeat().distribute(service.target)
    with watched(dataset, 2 * DEADLINE) as iterator:
        next(iterator)
        yield
        for _ in range(1000):
            next(iterator)


def _addresses(service: Service) -> dict[str, str]:
    [worker] = service.workers
    addresses: dict[str, str] = worker._shell._listening.transfers  # type: ignore[union-attr]
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


def _ends(peer: socket.socket) -> bool:
    """Whether the other side ends the connection; what it said before does not matter."""
    try:
        while peer.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def _one_warning(caplog: pytest.LogCaptureFixture, *words: str) -> bool:
    """Whether a single line of log came of it, and it says so."""
    assert eventually(lambda: _warnings(caplog))
    [line] = _warnings(caplog)
    return "is closed" in line and any(word in line for word in words)


def _claims(header: int, body: int) -> bytes:
    return PREFIX.pack(b"stk1", header, body)


BAD: dict[str, Buffer] = {
    "a header that claims 2^32 bytes": _claims(2**32 - 1, 0),
    "a body that claims 2^60 bytes": _claims(2, 2**60) + b"\xc1\xc1",
    "a header of garbage": _claims(4, 0) + b"\xff\xc1\xff\xc1",
    "a message that is no hello": frames.encode(frames.Credit(0, 1, 1))[0],
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_hello_ends_its_connection_with_one_warning(
    service: Service, transport: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with _plain(service, transport) as peer:
        peer.sendall(BYTES[transport](BAD[name]))
        assert _ends(peer)
    assert _one_warning(caplog, "is not a message", "expected Hello")
    assert read(stoker.Dataset.range(5).distribute(service.target)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n", bytes(1 << 16), b"\xff" * (1 << 16)]
)
def test_garbage_ends_its_connection_with_one_warning(
    service: Service, transport: str, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with _plain(service, transport) as peer:
        with contextlib.suppress(ConnectionError):
            peer.sendall(garbage)
        assert _ends(peer)
    assert _one_warning(caplog, "is not a message", "does not speak")


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_half_a_hello_and_a_hang_up_ends_with_one_warning(
    service: Service, transport: str, part: float, caplog: pytest.LogCaptureFixture
) -> None:
    with _plain(service, transport) as peer:
        whole = BYTES[transport](HELLO)
        peer.sendall(whole[: int(part * len(whole))])
    assert _one_warning(caplog, "is gone")


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_silence_ends_its_connection_with_one_warning(
    service: Service,
    transport: str,
    part: float,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stoker.service.worker.shell.HELLO_SECONDS", 0.05)
    monkeypatch.setattr(GRPC, "call_seconds", 0.05)
    with _plain(service, transport) as peer:
        whole = BYTES[transport](HELLO)
        peer.sendall(whole[: int(part * len(whole))])
        assert _ends(peer)
    assert _one_warning(caplog, "no whole message in time")


def test_another_protocol_version_is_told_why_and_ends_with_one_warning(
    service: Service, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = get_transport(transport).connect(_addresses(service)[transport], 5)
    connection.send(Hello(98, 99, 5, 6, 0))
    answer = connection.receive(5)
    connection.close()
    assert isinstance(answer, frames.Bye)
    assert answer.error is not None
    assert "98 to 99" in answer.error.message
    assert _one_warning(caplog, "98 to 99")


def test_many_bad_connections_at_once_leave_the_worker_serving(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def annoy(transport: str) -> None:
        for data in (b"\xff" * 5000, *map(BYTES[transport], BAD.values())):
            with _plain(service, transport) as peer, contextlib.suppress(ConnectionError):
                peer.sendall(data)
                _ends(peer)

    here = [name for name in TRANSPORTS if name in _addresses(service)]
    threads = [threading.Thread(target=annoy, args=(name,)) for name in here * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    expected = len(threads) * (1 + len(BAD))
    assert eventually(lambda: len(_warnings(caplog)) == expected)
    assert read(stoker.Dataset.range(5).distribute(service.target)) == [0, 1, 2, 3, 4]
