"""Servers that are given in place of the dispatcher, and that close or lose the first answer."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

import stoker
from stoker.cli.app import app
from stoker.errors import FailedPreconditionError, UnavailableError
from stoker.service import WorkerServer
from stoker.service import messages as m
from stoker.service.control import rpc
from tests.serving import Service, close, raw_server


class QuietHandler(BaseHTTPRequestHandler):
    """Answer HTTP, without a log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


@contextlib.contextmanager
def web_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def begin_http2(connection: socket.socket) -> None:
    """Send the first frame of a gRPC server, and close the connection."""
    connection.sendall(b"\0\0\0\4\0\0\0\0\0")
    close(connection)


WAYS = {
    "call": lambda address: rpc.call(address, m.GetCluster(), 20),
    "patient call": lambda address: rpc.call_patiently(address, m.GetCluster(), 60),
    "trainer": lambda address: list(stoker.Dataset.range(3).distribute(address)),
    "worker": lambda address: WorkerServer(dispatcher_address=address),
}
each_way = pytest.mark.parametrize("connect", WAYS.values(), ids=WAYS.keys())


@each_way
def test_a_web_server_that_closes_is_recognized(connect):
    with (
        web_server() as address,
        pytest.raises(FailedPreconditionError, match="does not speak stoker's protocol: it answe"),
    ):
        connect(address)


@pytest.mark.parametrize("protocol", ["tcp", "grpc"])
@each_way
def test_the_port_of_a_worker_is_recognized_with_its_dispatcher(connect, protocol):
    with Service(1, worker={"data_transfer_protocol": protocol}) as service:
        address = service.workers[0].address
        with pytest.raises(FailedPreconditionError) as raised:
            connect(address)
    assert str(raised.value) == (
        f"{address} is the port of a worker: the worker {address} serves elements there, not a "
        f"dispatcher; give the address of its dispatcher, which it reaches at "
        f"{service.target.removeprefix('grpc://')}"
    )


@pytest.mark.parametrize(
    "words", [("status",), ("jobs", "list"), ("datasets", "list"), ("drain", "a:1")]
)
def test_commands_recognize_the_port_of_a_worker(words):
    with Service(1, worker={"data_transfer_protocol": "tcp"}) as service:
        address = service.workers[0].address
        given = ("--dispatcher-address", address) if words[0] == "drain" else (address,)
        result = CliRunner().invoke(app, [*words, *given])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"stoker: {address} is the port of a worker: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("answers", [(close,), (close, begin_http2)])
def test_a_proxy_or_a_dispatcher_that_restarts_is_no_foreign_server(answers):
    with (
        raw_server(*answers) as port,
        pytest.raises(UnavailableError, match="closed before the server sent anything"),
    ):
        rpc.call(f"localhost:{port}", m.GetCluster(), 20)
