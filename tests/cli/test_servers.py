"""The `stoker dispatcher` and `stoker worker` commands in real processes, with signals."""

import json
import os
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import stoker
from stoker.errors import FailedPreconditionError
from stoker.service import ShardingPolicy
from tests.cli.commands import Command, running, running_dispatcher

pytestmark = pytest.mark.timeout(120)


def test_commands_serve_an_epoch():
    with running_dispatcher() as address, running("worker", "--dispatcher", address) as worker:
        worker.wait_for(r"worker 0 \(process \d+\) serves at \S+:\d+\n")
        dataset = stoker.Dataset.range(100).distribute(f"grpc://{address}")
        assert sorted(dataset) == list(range(100))


def test_grpc_workers_need_clients_that_name_grpc():
    with (
        running_dispatcher() as address,
        running("worker", "--dispatcher", address, "--data-transfer-protocol", "grpc") as workers,
    ):
        workers.wait_for(r"serves at localhost:\d+")
        dataset = stoker.Dataset.range(100).distribute(address, data_transfer_protocol="grpc")
        assert sorted(dataset) == list(range(100))
        unnamed = stoker.Dataset.range(100).distribute(address)
        with pytest.raises(FailedPreconditionError, match="data_transfer_protocol='grpc'"):
            list(unnamed)


def test_workers_of_the_list_read_shards_and_others_are_refused():
    """A killed process takes its place again, at another port."""
    places = ("--worker-addresses", "localhost,localhost:%port%")
    with (
        running_dispatcher(*places) as address,
        running("worker", "--dispatcher", address, "--processes", "2") as workers,
    ):
        pid = int(workers.wait_for(r"worker 0 \(process (\d+)\) serves at")[1])
        workers.wait_for(r"worker 1 \(process \d+\) serves at")
        with running("worker", "--dispatcher", address) as refused:
            assert refused.end() == 1
        assert "other workers are already running at the configured host" in refused.output
        os.kill(pid, signal.SIGKILL)
        workers.wait_for(rf"worker 0 \(process (?!{pid}\b)\d+\) serves at")
        dataset = stoker.Dataset.range(100).distribute(address, processing_mode=ShardingPolicy.DATA)
        assert sorted(dataset) == list(range(100))


def test_one_file_and_variables_configure_both_servers(tmp_path):
    path = tmp_path / "stoker.toml"
    path.write_text('[dispatcher]\nport = 0\n[worker]\nprocesses = 2\nbuffer_bytes = "1MiB"\n')
    environ = {"STOKER_CONFIG": str(path), "STOKER_WORKR_TAGS": "a"}
    with running("dispatcher", **environ) as dispatcher:
        address = dispatcher.wait_for(r"dispatcher serves at grpc://(localhost:\d+)\n")[1]
        dispatcher.wait_for(
            "variable STOKER_WORKR_TAGS has no effect: .*; did you mean STOKER_WORKER_TAGS"
        )
        with running("worker", **environ, STOKER_DISPATCHER_ADDRESS=address) as worker:
            worker.wait_for(r"worker 1 \(process \d+\) serves at")


def test_a_wrong_key_ends_a_server_with_code_2(tmp_path):
    path = tmp_path / "stoker.toml"
    path.write_text("[worker]\nproceses = 2\n")
    command = Command("worker", "--dispatcher", "localhost:1", "--config", str(path))
    assert command.end() == 2
    assert command.output == (
        f"stoker: {path}: [worker] has no key proceses; did you mean processes?\n"
    )


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/proc/x", "No such file or directory"),
        ("{tmp}/file", "{tmp}/file is not a directory"),
        ("{tmp}/file/below", "Not a directory"),
    ],
)
def test_a_work_dir_that_cannot_be_created_is_code_2(tmp_path, path, reason):
    (tmp_path / "file").touch()
    path, reason = path.format(tmp=tmp_path), reason.format(tmp=tmp_path)
    command = Command("dispatcher", "--port", "0", "--work-dir", path)
    assert command.end() == 2
    assert command.output.splitlines(keepends=True)[-1] == (
        f"stoker: --work-dir: `work_dir` {path} cannot be created: {reason}; name a directory "
        "that exists or can be created, or a URL of an object store\n"
    )


def test_a_variable_with_a_wrong_work_dir_is_named():
    command = Command("dispatcher", "--port", "0", STOKER_WORK_DIR="/proc/x")
    assert command.end() == 2
    assert "\nstoker: STOKER_WORK_DIR: `work_dir` /proc/x cannot be" in f"\n{command.output}"


def test_a_damaged_journal_is_code_2(tmp_path):
    (tmp_path / "journal.sqlite-wal").touch()
    command = Command("dispatcher", "--port", "0", "--work-dir", str(tmp_path))
    assert command.end() == 2
    assert f"{tmp_path}/journal.sqlite is damaged: the file is missing" in command.output
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["journal.lock", "journal.sqlite-wal"]


def test_processes_without_a_port_each_are_refused():
    words = ("--dispatcher", "localhost:1", "--port", "65535", "--processes", "2")
    command = Command("worker", *words)
    assert command.end() == 2
    assert command.output == (
        "stoker: --port: `port` must be at most 65534, or 0, for 2 processes with a port each, "
        "got 65535\n"
    )


def test_unknown_transport_is_one_line():
    command = Command("worker", "--dispatcher", "localhost:1", "--data-transfer-protocol", "pigeon")
    assert command.end() == 2
    assert command.output == (
        "stoker: --data-transfer-protocol: there is no 'pigeon'; choose from grpc, tcp\n"
    )


def test_killed_worker_process_is_logged_and_replaced():
    with (
        running_dispatcher() as address,
        running("worker", "--dispatcher", address, "--processes", "2") as worker,
    ):
        pid = int(worker.wait_for(r"worker 0 \(process (\d+)\) serves at")[1])
        worker.wait_for(r"worker 1 \(process (\d+)\) serves at")
        os.kill(pid, signal.SIGKILL)
        worker.wait_for(
            rf"worker 0 \(process {pid}\) was killed by SIGKILL \(out of memory, or kill -9\)"
        )
        again = worker.wait_for(rf"worker 0 \(process (?!{pid}\b)(\d+)\) serves at")
        assert int(again[1]) != pid


def test_an_epoch_is_seen_in_the_logs_of_both_servers():
    def fail(number: int) -> int:
        raise ValueError("no such image")

    arguments = ("--log-format", "json")
    with running("dispatcher", "--port", "0", *arguments) as dispatcher:
        address = dispatcher.wait_for(r"serves at grpc://(localhost:\d+)\"")[1]
        with running("worker", "--dispatcher", address, *arguments) as worker:
            worker.wait_for("serves at")
            dataset = stoker.Dataset.range(5).map(fail).distribute(address, job_name="train")
            assert list(dataset.ignore_errors()) == []
            worker.wait_for("no such image")
            dispatcher.wait_for('"a client left"')
        dispatcher.wait_for("it was stopped")
    seen = [json.loads(line) for line in dispatcher.output.splitlines()]
    first, *others = [line["message"] for line in seen if line.get("job") == "train"]
    assert first.startswith("a job was created: policy DYNAMIC, dataset ")
    assert others[:2] == ["an epoch begins", "a client joined"]
    assert set(others[2:]) == {"the epoch ended after 1 task", "a client left"}
    logged = [json.loads(line) for line in worker.output.splitlines()]
    [failure] = [line for line in logged if "no such image" in line["message"]]
    assert failure["message"].startswith("ValueError: no such image (raised by the function of")
    assert failure["job"] == "train"


def test_worker_names_its_dispatcher_before_it_is_reached(closed_port):
    address = f"localhost:{closed_port}"
    with running("worker", "--dispatcher", address, "--processes", "2") as worker:
        worker.wait_for(f"INFO    starting 2 worker processes of the dispatcher at {address}\n")
        worker.wait_for(rf"waiting for the dispatcher at {address} \(Connection refused\)")


def test_foreign_connections_cost_no_line():
    with running("dispatcher", "--port", "0") as dispatcher:
        address = dispatcher.wait_for(r"serves at grpc://(localhost:\d+)\n")[1]
        with running("worker", "--dispatcher", address) as worker:
            place = worker.wait_for(r"serves at (\S+:\d+)\n")[1]
            for target in (address, place):
                host, _, port = target.rpartition(":")
                for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64):
                    with socket.create_connection((host, int(port)), 5) as probe:
                        probe.sendall(sent)
            assert sorted(stoker.Dataset.range(3).distribute(address)) == [0, 1, 2]
    assert "closed" not in dispatcher.output + worker.output
    assert "broke" not in dispatcher.output + worker.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_servers_exit_cleanly_on_a_signal(number):
    with running_dispatcher() as address:
        worker = Command("worker", "--dispatcher", address)
        worker.wait_for("serves at")
        worker.send(number)
        assert worker.end() == 0
        assert "Traceback" not in worker.output
    dispatcher = Command("dispatcher", "--port", "0")
    dispatcher.wait_for("serves at")
    dispatcher.send(number)
    assert dispatcher.end() == 0
    assert "Traceback" not in dispatcher.output


def test_a_worker_drains_on_sigterm():
    """Trainers read every element of the splits that it had begun."""
    with running_dispatcher() as address:
        first = Command("worker", "--dispatcher", address, "--processes", "2")
        first.wait_for("worker 0 .* serves at")
        first.wait_for("worker 1 .* serves at")
        dataset = (
            stoker.Dataset.range(20_000)
            .map(_slow)
            .distribute(address, processing_mode="distributed_epoch", on_loss="raise")
        )
        with dataset.iterator() as iterator:
            found = [next(iterator) for _ in range(100)]
            first.send(signal.SIGTERM)
            with running("worker", "--dispatcher", address, "--grace", "0"):
                found.extend(iterator)
            assert first.end() == 0
        assert sorted(found) == list(range(20_000))


def test_a_second_sigterm_ends_the_grace():
    with running_dispatcher() as address:
        worker = Command("worker", "--dispatcher", address, "--grace", "600")
        worker.wait_for("serves at")
        with (
            stoker.Dataset.range(10**6)
            .distribute(address, processing_mode="distributed_epoch")
            .iterator() as iterator
        ):
            next(iterator)
            worker.send(signal.SIGTERM)
            worker.wait_for("stopping: trainers have 600 s to read what is computed")
            worker.send(signal.SIGTERM)
            assert worker.end() == 0


def _slow(x):
    time.sleep(1e-4)
    return x


@pytest.mark.parametrize("words", [["dispatcher"], ["worker", "--dispatcher", "localhost:5050"]])
def test_non_loopback_address_needs_insecure(words):
    command = Command(*words, "--host", "0.0.0.0")
    assert command.end() == 2
    assert "insecure" in command.output
    assert "Traceback" not in command.output
    assert command.output.count("\n") == 1


def test_port_of_another_server_is_one_line():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            address = f"localhost:{server.server_port}"
            worker = Command("worker", "--dispatcher", address)
            assert worker.end() == 1
        finally:
            server.shutdown()
            serving.join()
    begins, failed = worker.output.splitlines()
    assert begins.endswith(f"starting 1 worker process of the dispatcher at {address}")
    assert failed.startswith(f"stoker: the server at {address} does not speak stoker's protocol")


def test_port_in_use_is_one_line():
    with running_dispatcher() as address:
        second = Command("dispatcher", "--port", address.rpartition(":")[2])
        assert second.end() == 1
        assert address.rpartition(":")[2] in second.output
        assert "Traceback" not in second.output
