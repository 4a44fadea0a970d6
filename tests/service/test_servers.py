"""Start and stop of the two servers, and malicious or broken peers."""

import contextlib
import re
import socket
import struct
import threading
import time

import numpy as np
import pytest

import stoker
from stoker.errors import (
    ErrorRecord,
    FailedPreconditionError,
    InvalidArgumentError,
    StokerError,
    UnavailableError,
)
from stoker.service import DispatchServer, ShardingPolicy, WorkerServer, distribute, messages
from stoker.service.control import rpc, rpc_session
from stoker.service.keys import reader_key
from stoker.wire import frames
from stoker.wire.transports import get_transport
from tests.manual_clock import ManualClock
from tests.serving import Service, eventually, read

# ── lifecycle ────────────────────────────────────────────────────────────────────────────────────


def test_dispatcher_start_and_stop_are_idempotent():
    dispatcher = DispatchServer(start=False)
    with pytest.raises(FailedPreconditionError, match="start"):
        _ = dispatcher.target
    dispatcher.start()
    target = dispatcher.target
    dispatcher.start()
    assert dispatcher.target == target
    dispatcher.stop()
    dispatcher.stop()
    dispatcher.join()
    with pytest.raises(FailedPreconditionError, match="stopped"):
        dispatcher.start()


def test_worker_start_and_stop_are_idempotent():
    with DispatchServer() as dispatcher:
        worker = WorkerServer(dispatcher_address=dispatcher.target, start=False)
        assert dispatcher.num_workers() == 0
        worker.start()
        worker.start()
        assert dispatcher.num_workers() == 1
        worker.stop()
        worker.stop()
        worker.join()
        with pytest.raises(FailedPreconditionError, match="stopped"):
            worker.start()


def test_server_can_be_stopped_before_start():
    for server in (
        DispatchServer(start=False),
        WorkerServer(dispatcher_address="localhost:1", start=False),
    ):
        server.stop()
        server.join()


def test_join_returns_when_another_thread_stops_the_server():
    with Service(1) as service:
        for server in (service.workers[0], service.dispatcher):
            waiting = threading.Thread(target=server.join)
            waiting.start()
            server.stop()
            waiting.join(5)
            assert not waiting.is_alive()


def test_worker_is_registered_when_start_returns():
    with Service(2) as service:
        assert service.dispatcher.num_workers() == 2
        service.workers[0].stop()
        assert eventually(lambda: service.dispatcher.num_workers() == 1)


def test_target_contains_protocol_and_port():
    with Service(0) as first:
        port = first.address[1]
    with DispatchServer(port=port, protocol="grpc") as dispatcher:
        assert dispatcher.target == f"grpc://localhost:{port}"


def test_port_in_use_is_one_clear_error():
    with Service(0) as service:
        with pytest.raises(
            UnavailableError, match=f"cannot serve on localhost:{service.address[1]}"
        ):
            DispatchServer(port=service.address[1])
        with pytest.raises(UnavailableError, match=str(service.address[1])):
            service.add_worker(port=service.address[1])
        assert service.dispatcher.num_workers() == 0


@pytest.mark.parametrize("server", [DispatchServer, WorkerServer])
def test_unknown_config_field_is_named(server):
    with pytest.raises(InvalidArgumentError, match="colour"):
        server(colour=1, dispatcher_address="localhost:1")


def test_worker_without_a_dispatcher_gives_up_in_time(closed_port):
    address = f"localhost:{closed_port}"
    with pytest.raises(UnavailableError, match=f"no dispatcher answers at {address}"):
        WorkerServer(dispatcher_address=address, dispatcher_timeout_ms=200)


def test_worker_stops_after_dispatcher_timeout():
    clock = ManualClock()
    with Service(0, clock=clock) as service:
        worker = service.add_worker(dispatcher_timeout_ms=10_000)
        service.dispatcher.stop()
        waiting = threading.Thread(target=worker.join)
        waiting.start()
        clock.advance(9.0)
        assert waiting.is_alive()
        assert clock.eventually(lambda: not waiting.is_alive())


def test_port_is_inserted_into_configured_addresses():
    with Service(0) as service:
        worker = service.add_worker(worker_address="127.0.0.1:%port%")
        assert worker.address.startswith("127.0.0.1:")
        assert int(worker.address.rpartition(":")[2]) > 0
        assert read(stoker.Dataset.range(3).distribute(service.target)) == [0, 1, 2]


# ── memory ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("transport", ["tcp", "local"])
def test_slow_consumer_keeps_worker_memory_bounded(transport):
    made: list[int] = []
    with Service(1, worker={"buffer_bytes": 4 << 20}) as service:

        def make(x):
            return np.full(1 << 17, x)  # 1 MiB

        dataset = (
            stoker.Dataset.range(10_000)
            .map(make)
            .apply(distribute("parallel_epochs", service.target, data_transfer_protocol=transport))
        )
        with dataset.iterator() as iterator:
            assert next(iterator)[0] == 0
            [task] = service.tasks
            assert eventually(lambda: task.buffer.nbytes >= 4 << 20)
            for expected in range(1, 30):
                assert next(iterator)[0] == expected
                made.append(task.buffer.nbytes)
            [reader] = task.readers.values()
            kept = reader.kept_positions
        assert max(made) <= 6 << 20
        assert kept <= 4 + 1


# ── data port ────────────────────────────────────────────────────────────────────────────────────
def _hello(**changes) -> frames.Hello:
    fields = {"protocol_min": 1, "protocol_max": 1, "client_id": 5, "task_id": 6, "next_frame": 0}
    return frames.Hello(**{**fields, **changes})


def _bytes_of(message) -> bytes:
    return b"".join(map(bytes, frames.encode(message)))


HELLO = _bytes_of(_hello())

BAD_BYTES = {
    "nothing": b"",
    "one byte": b"\0",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(1 << 16),
    "ones": b"\xff" * (1 << 16),
    "half a hello": HELLO[: len(HELLO) // 2],
    "half a prefix": HELLO[:3],
    "a huge header": HELLO[:4] + b"\xff" * 12,
    "a hello and garbage": HELLO + b"\x01" * 1000,
    "credit first": _bytes_of(frames.Credit(0, 1, 1)),
    "want first": _bytes_of(frames.Want(0, 1, 1, [(0, 1, 1)])),
    "a frame": _bytes_of(frames.Frame(0, [1, 2, 3])),
    "garbage in a header": HELLO[:-4] + b"\xc1\xc1\xc1\xc1",
}


@pytest.fixture
def service():
    with Service(1) as running:
        yield running


def _still_serves(service: Service) -> bool:
    dataset = stoker.Dataset.range(5).map(lambda x: x + 1)
    return read(dataset.distribute(service.target, data_transfer_protocol="tcp")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", BAD_BYTES)
@pytest.mark.parametrize("port", ["data", "control"])
def test_server_survives_bad_bytes(service, name, port):
    address = service.address
    if port == "data":
        host, number = service.workers[0].address.rsplit(":", 1)
        address = host, int(number)
    with socket.create_connection(address, timeout=5) as peer:
        with contextlib.suppress(OSError):  # it may have disconnected already
            peer.sendall(BAD_BYTES[name])
            peer.shutdown(socket.SHUT_WR)
        assert _still_serves(service)
    assert _still_serves(service)


def test_worker_survives_a_reset_within_a_message(service):
    host, number = service.workers[0].address.rsplit(":", 1)
    with socket.create_connection((host, int(number)), timeout=5) as peer:
        peer.sendall(HELLO[:10])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert _still_serves(service)


@pytest.mark.parametrize("transport", ["tcp", "local"])
def test_data_hello_of_another_protocol_is_refused(service, transport):
    worker = service.workers[0]
    address = worker._shell._listeners.data_transfer_addresses[transport]
    connection = get_transport(transport).connect(address, 5)
    connection.send(_hello(protocol_min=98, protocol_max=99))
    answer = connection.receive(5)
    connection.close()
    assert isinstance(answer, frames.Bye)
    assert answer.error is not None
    assert answer.error.code == "FailedPreconditionError"
    assert "98 to 99" in answer.error.message
    assert _still_serves(service)


def test_newer_compatible_peer_is_accepted():
    with Service(1) as service:
        dataset = stoker.Dataset.range(10).repeat().distribute(service.target)
        with dataset.iterator() as iterator:
            next(iterator)
            [task_id] = service.state.tasks
            key = reader_key(service.state.tasks[task_id].key, 12345)
            connection = get_transport("tcp").connect(service.workers[0].address, 5)
            connection.send(_hello(protocol_max=99, client_id=12345, task_id=task_id, key=key))
            answer = connection.receive(5)
            connection.close()
        assert answer == frames.Welcome(1, service.workers[0].address, 64 << 20)


# ── control port ─────────────────────────────────────────────────────────────────────────────────
class _RawSession:
    """A session that sends given bytes and keeps the answers."""

    def __init__(self, address: str, *first: bytes) -> None:
        self.answers: list = []
        self.lost = threading.Event()
        self._first = first
        self._ready = threading.Event()
        self._session = rpc_session.Session(
            address, self._opened, self.answers.append, self.lost.set, lambda: None
        )
        self._ready.set()

    def _opened(self) -> None:
        assert self._ready.wait(5)
        if not self.answers:
            for data in self._first:
                self._session._send_queue.put_nowait(data)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self._session.close()


def _refusal(service: Service, *first: bytes) -> StokerError:
    address = service.target.removeprefix("grpc://")
    with _RawSession(address, *first) as session:
        assert eventually(lambda: session.answers)
        [answer, *_] = session.answers
        assert eventually(session.lost.is_set)
    assert isinstance(answer, messages.Refused)
    return stoker.errors.from_record(answer.error)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x00" * 100, rpc.encode({"type": "Unheard"})])
def test_invalid_control_message_is_refused(service, data):
    error = _refusal(service, data)
    assert isinstance(error, InvalidArgumentError)
    assert "not a control message" in str(error)
    assert _still_serves(service)


@pytest.mark.parametrize(
    "message", [messages.Heartbeat(), messages.ClientClose(), messages.WorkerLeave()]
)
def test_session_must_open_with_a_hello(service, message):
    error = _refusal(service, rpc.encode(message))
    assert "WorkerHello, ClientHello or SupervisorHello" in str(error)
    assert _still_serves(service)


def _client_hello(**changes) -> messages.ClientHello:
    fields = {
        "protocol_min": messages.PROTOCOL_MIN,
        "protocol_max": messages.PROTOCOL_MAX,
        "dataset_id": "none",
        "job": "j",
        "parameters": messages.JobParameters(ShardingPolicy.OFF),
        "epoch": (0,),
    }
    return messages.ClientHello(**{**fields, **changes})


def test_client_of_another_protocol_is_refused(service):
    error = _refusal(service, rpc.encode(_client_hello(protocol_min=98, protocol_max=99)))
    assert isinstance(error, FailedPreconditionError)
    assert "98 to 99" in str(error)
    assert "install the same stoker version" in str(error)
    assert _still_serves(service)


@pytest.mark.parametrize("mode", ["SIDEWAYS", 99, ShardingPolicy.DETERMINISTIC])
def test_client_of_an_unknown_mode_is_refused(service, mode):
    dataset_id = stoker.service.register_dataset(service.target, stoker.Dataset.range(3))
    parameters = messages.JobParameters(mode, "NOWHERE", None, True)
    hello = _client_hello(dataset_id=dataset_id, parameters=parameters)
    error = _refusal(service, rpc.encode(hello))
    assert re.search("not a control message|must send its draws", str(error))
    assert _still_serves(service)


@pytest.mark.parametrize(
    "message",
    [
        messages.SplitRequest(1, 2, 3, [4], 5),
        messages.ListingFailed(1, ErrorRecord("OSError", "no")),
        messages.TaskProgress(7, exhausted=True),
        messages.ClientClose(),
    ],
)
def test_dispatcher_survives_worker_messages_of_a_client(service, message):
    dataset_id = stoker.service.register_dataset(service.target, stoker.Dataset.range(3))
    hello = _client_hello(dataset_id=dataset_id, job=f"liar {time.monotonic()}")
    data = [rpc.encode(hello), rpc.encode(message)]
    with _RawSession(service.target.removeprefix("grpc://"), *data) as session:
        assert eventually(lambda: session.answers)
        assert _still_serves(service)
    assert _still_serves(service)
    assert service.dispatcher.num_workers() == 1
