"""Clients that stop reading: they buffer at most their credit and block no other client."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import stoker
from stoker.service import distribute
from stoker.service.keys import reader_key
from stoker.wire import frames as f
from stoker.wire.transports import get_transport
from tests.serving import Service, eventually, read, worker_fields_for

MIB = 1 << 20


@pytest.fixture
def transport() -> str | None:
    return None


@pytest.fixture
def service(transport: str | None) -> Iterator[Service]:
    with Service(1, worker={"buffer_bytes": 4 * MIB, **worker_fields_for(transport)}) as service:
        yield service


def _hello(task, client_id: int) -> f.Hello:
    key = reader_key(task.start.key, client_id)
    return f.Hello(1, 1, client_id, task.start.task_id, 0, attempt=1, key=key)


def _job(service: Service, dataset: stoker.Dataset, **settings) -> stoker.Dataset:
    """Return a dataset whose iterators are clients of job "j"."""
    return dataset.apply(distribute("parallel_epochs", service.target, job_name="j", **settings))


@pytest.mark.parametrize("transport", ["tcp", "grpc", "local", None])
def test_paused_client_leaves_the_rest_to_another(service: Service, transport: str | None) -> None:
    dataset = stoker.Dataset.range(200_000)
    with _job(service, dataset, data_transfer_protocol=transport).iterator() as paused:
        first = next(paused)
        rest = read(_job(service, dataset, data_transfer_protocol=transport))
        assert len(set(rest)) == len(rest) > 199_000
        assert first not in rest


def test_client_with_an_unread_socket_blocks_no_other(
    service: Service,
) -> None:
    """Frames of a megabyte fill the socket's buffers long before the credit is exhausted."""
    dataset = stoker.Dataset.range(300).map(lambda x: np.full(1 << 17, x))
    with _job(service, dataset, data_transfer_protocol="tcp").iterator() as reading:
        got = [int(next(reading)[0])]
        [task] = service.tasks
        address = service.workers[0].address
        unread = get_transport("tcp").connect(address, 5.0)
        try:
            unread.send(_hello(task, 99))
            unread.send(f.Credit(0, 1 << 40, 1 << 40))
            assert eventually(lambda: 99 in task.readers)
            assert eventually(lambda: task.readers[99].kept_positions >= 1)
            rest: list[int] = []
            thread = threading.Thread(target=lambda: rest.extend(int(x[0]) for x in reading))
            thread.start()
            unread_reader = task.readers[99]
            assert eventually(lambda: task.ended)
            assert unread_reader.kept_positions <= 4 + 1
        finally:
            unread.close()
        thread.join(20)
        assert not thread.is_alive()
        got += rest
        assert got == sorted(set(got))
        assert len(got) >= 300 - 5


@pytest.mark.parametrize("transport", ["tcp", "grpc", "local", None])
def test_small_buffers_on_both_sides_do_not_deadlock(transport: str | None) -> None:
    dataset = stoker.Dataset.range(2_000).map(lambda x: np.full(1 << (x % 14), x))
    with Service(2, worker={"buffer_bytes": 1000, **worker_fields_for(transport)}) as service:
        for requests in (None, 1):
            distributed = dataset.distribute(
                service.target,
                processing_mode="distributed_epoch",
                data_transfer_protocol=transport,
                buffer_bytes=1,
                max_outstanding_requests=requests,
            )
            assert sorted(int(x[0]) for x in read(distributed)) == list(range(2_000))
