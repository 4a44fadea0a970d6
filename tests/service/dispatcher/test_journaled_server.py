"""Dispatchers with a journal: one for each work_dir, and one clear error for a wrong one."""

import socket
from pathlib import Path

import msgspec
import pytest

import stoker
from stoker.errors import FailedPreconditionError, StokerError, UnavailableError
from stoker.service import DispatchServer, WorkerServer
from stoker.service.api.registration import registration_of
from stoker.service.control import rpc
from stoker.service.dispatcher.state import records as r
from stoker.service.journal import open_journal
from tests.serving import eventually, read


def serve(work_dir: object, port: int = 0) -> DispatchServer:
    return DispatchServer(port=port, work_dir=str(work_dir), fault_tolerant_mode=True)


def port_of(dispatcher: DispatchServer) -> int:
    return int(dispatcher.target.rpartition(":")[2])


def register(dispatcher: DispatchServer) -> None:
    """Make one call that is recorded; raise the error of a dispatcher that ends."""
    request = registration_of(stoker.Dataset.range(3), None)
    rpc.call(dispatcher.target.removeprefix("grpc://"), request, 10)


def test_a_directory_has_one_dispatcher_at_a_time(tmp_path: Path):
    with serve(tmp_path) as first:
        with pytest.raises(FailedPreconditionError, match="another dispatcher"):
            serve(tmp_path)
        with WorkerServer(dispatcher_address=first.target):
            assert read(stoker.Dataset.range(3).distribute(first.target)) == [0, 1, 2]
    serve(tmp_path).stop()


@pytest.mark.parametrize("work_dir", ["directory", "memory://test_journaled_server/restart"])
def test_an_epoch_goes_on_after_a_restart(tmp_path: Path, work_dir: str):
    where = work_dir if "://" in work_dir else tmp_path / work_dir
    first = serve(where)
    port = port_of(first)
    with WorkerServer(dispatcher_address=first.target):
        dataset = stoker.Dataset.range(1000).distribute(first.target, "distributed_epoch")
        with dataset.iterator() as iterator:
            found = [next(iterator) for _ in range(10)]
            first.stop()
            with serve(where, port):
                found += read(iterator)
    assert sorted(found) == list(range(1000))


def test_a_second_dispatcher_at_a_url_replaces_the_first():
    url = "memory://test_journaled_server/replaced"
    with serve(url) as first, serve(url):
        with pytest.raises(StokerError):
            register(first)
        assert eventually(lambda: first.failure is not None)
        assert "another dispatcher" in str(first.failure)
        first.join()


def test_a_dispatcher_that_cannot_bind_frees_its_journal(tmp_path: Path):
    with (
        socket.create_server(("localhost", 0)) as taken,
        pytest.raises(UnavailableError, match="cannot serve on"),
    ):
        serve(tmp_path, taken.getsockname()[1])
    serve(tmp_path).stop()


def test_a_journal_of_other_records_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    journal = open_journal(
        str(tmp_path), lambda _parts, _units: iter(()), failed=print, durable=lambda _: None
    )
    journal.append(msgspec.msgpack.encode([r.WorkerDrainBegun(1)]))
    journal.close(10)
    for _ in range(2):
        with pytest.raises(
            FailedPreconditionError, match=f"`work_dir` {tmp_path} does not hold the records"
        ):
            serve(tmp_path)
    assert "is not closed" not in caplog.text  # the refused start freed it before it returned


def test_a_journal_that_fails_stops_its_dispatcher(tmp_path: Path):
    dispatcher = serve(tmp_path)
    try:
        (tmp_path / "journal.sqlite").rename(tmp_path / "moved")
        with pytest.raises(StokerError):
            register(dispatcher)
        dispatcher.join()
        assert isinstance(dispatcher.failure, StokerError)
        assert "internal error" not in str(dispatcher.failure)
    finally:
        dispatcher.stop()
