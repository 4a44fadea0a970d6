"""Clients that stop reading: they hold what they were promised, and nobody waits for them."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import stoker
from stoker.service import distribute
from stoker.wire import frames as f
from stoker.wire.transports import get_transport
from tests.serving import Service, eventually, read, serving_by

MIB = 1 << 20


@pytest.fixture
def transport() -> str | None:
    return None


@pytest.fixture
def service(transport: str | None) -> Iterator[Service]:
    with Service(1, worker={"buffer_bytes": 4 * MIB, **serving_by(transport)}) as service:
        yield service


def _job(service: Service, dataset: stoker.Dataset, **settings) -> stoker.Dataset:
    """One more client of the one job."""
    return dataset.apply(distribute("parallel_epochs", service.target, job_name="j", **settings))


@pytest.mark.parametrize("transport", ["tcp", "grpc", "local", None])
def test_a_client_that_pauses_keeps_little_from_the_one_that_reads_on(
    service: Service, transport: str | None
) -> None:
    dataset = stoker.Dataset.range(200_000)
    with _job(service, dataset, data_transfer_protocol=transport).iterator() as paused:
        first = next(paused)
        rest = read(_job(service, dataset, data_transfer_protocol=transport))
        assert len(set(rest)) == len(rest) > 199_000
        assert first not in rest


def test_a_client_that_does_not_even_read_its_socket_stops_neither_worker_nor_others(
    service: Service,
) -> None:
    """Frames of a megabyte fill the socket's buffers long before the credit is used up."""
    dataset = stoker.Dataset.range(300).map(lambda x: np.full(1 << 17, x))
    with _job(service, dataset, data_transfer_protocol="tcp").iterator() as reading:
        got = [int(next(reading)[0])]
        [task] = service.tasks
        address = service.workers[0].address
        deaf = get_transport("tcp").connect(address, 5.0)
        try:
            deaf.send(f.Hello(1, 1, 99, task.start.task_id, 0, attempt=1))
            deaf.send(f.Credit(0, 1 << 40, 1 << 40))
            assert eventually(lambda: 99 in task.readers)
            assert eventually(lambda: task.readers[99].kept_positions >= 1)
            rest: list[int] = []
            thread = threading.Thread(target=lambda: rest.extend(int(x[0]) for x in reading))
            thread.start()
            held = task.readers[99]
            assert eventually(lambda: task.exhausted)
            assert held.kept_positions <= 4 + 1
        finally:
            deaf.close()
        thread.join(20)
        assert not thread.is_alive()
        got += rest
        assert got == sorted(set(got))
        assert len(got) >= 300 - 5


@pytest.mark.parametrize("transport", ["tcp", "grpc", "local", None])
def test_small_bounds_on_both_sides_slow_nothing_down_to_a_stop(transport: str | None) -> None:
    dataset = stoker.Dataset.range(2_000).map(lambda x: np.full(1 << (x % 14), x))
    with Service(2, worker={"buffer_bytes": 1000, **serving_by(transport)}) as service:
        for settings in ({"buffer_bytes": 1}, {"buffer_bytes": 1, "max_outstanding_requests": 1}):
            distributed = dataset.distribute(
                service.target, data_transfer_protocol=transport, **settings
            )
            assert sorted(int(x[0]) for x in read(distributed)) == list(range(2_000))
