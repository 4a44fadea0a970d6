"""Connections that break, servers that vanish, bytes that are wrong."""

import itertools
import time

import pytest

import stoker
from stoker import errors
from stoker.service import DispatchServer, WorkerServer
from tests.faults.proxy import CuttingProxy
from tests.manual_clock import ManualClock


def _slow(number: int) -> int:
    time.sleep(0.001)
    return number


@pytest.mark.parametrize(
    ("transport", "cut_after"),
    [("tcp", (100, 2_000_000)), ("tcp", (700_000,)), ("grpc", (700_000,))],
)
@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_a_repeatedly_cut_stream_yields_each_element_in_order(
    mode: str, transport: str, cut_after: tuple[int, ...]
) -> None:
    clock = ManualClock()
    with DispatchServer(clock=clock) as dispatcher, clock.running():
        first = WorkerServer(dispatcher_address=dispatcher.target, clock=clock)
        port = int(first.address.rpartition(":")[2])
        first.stop()
        with (
            CuttingProxy(port, itertools.cycle(cut_after)) as proxy,
            WorkerServer(
                dispatcher_address=dispatcher.target,
                port=port,
                data_transfer_protocol=transport,
                data_transfer_address=f"localhost:{proxy.port}",
                clock=clock,
            ),
        ):
            dataset = stoker.Dataset.range(50_000).map(lambda x: (x, str(x) * 9))
            distributed = dataset.distribute(
                dispatcher, processing_mode=mode, data_transfer_protocol=transport
            )
            got = list(distributed)
            assert proxy.cuts > 0
    assert got == [(x, str(x) * 9) for x in range(50_000)]


def test_a_stopped_dispatcher_is_an_error_after_all_elements() -> None:
    dispatcher = DispatchServer()
    with WorkerServer(dispatcher_address=dispatcher.target):
        dataset = stoker.Dataset.range(500).map(_slow)
        distributed = dataset.distribute(dispatcher.target, processing_mode="parallel_epochs")
        with distributed.iterator() as iterator:
            got = [next(iterator)]
            dispatcher.stop()
            began = time.monotonic()
            with pytest.raises(
                errors.UnavailableError, match="was stopped, and no worker has anything"
            ):
                got.extend(iterator)
            assert time.monotonic() - began < 20
            with pytest.raises(errors.UnavailableError):
                next(iterator)
    assert got == list(range(500))


def test_a_restart_without_journal_fails_clients_not_workers() -> None:
    dispatcher = DispatchServer()
    port = int(dispatcher.target.rpartition(":")[2])
    with WorkerServer(dispatcher_address=dispatcher.target) as worker:
        endless = (
            stoker.Dataset.range(10)
            .repeat()
            .distribute(dispatcher.target, processing_mode="distributed_epoch")
        )
        with endless.iterator() as iterator:
            next(iterator)
            dispatcher.stop()
            with DispatchServer(port=port) as again:
                with pytest.raises(
                    errors.UnavailableError, match=r"restarted without a journal|was stopped"
                ):
                    list(iterator)
                deadline = time.monotonic() + 10
                while again.num_workers() < 1 or worker.num_tasks():
                    assert time.monotonic() < deadline
                assert sorted(stoker.Dataset.range(5).distribute(again.target)) == list(range(5))


def test_a_client_without_a_dispatcher_fails_after_the_timeout() -> None:
    with DispatchServer() as dispatcher:
        target = dispatcher.target
    dataset = stoker.Dataset.range(3).distribute(target, connect_timeout=0.5)
    with pytest.raises(errors.UnavailableError, match=r"no dispatcher answered at localhost:\d+"):
        list(dataset)
