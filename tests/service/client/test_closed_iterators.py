"""Memory and descriptors of iterators that are closed or at their end, while the objects live."""

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.service.client.orders.round_order import RoundOrder
from tests.serving import Service, eventually, iterator_with_deadline, worker_fields_for

ELEMENT = 256 << 10
FIRST = 20
"""Elements that are read before workers send several ahead."""


def images(count: int = 10_000) -> stoker.Dataset:
    return stoker.Dataset.range(count).map(lambda number: np.full(ELEMENT, number, np.uint8))


def memfds() -> int:
    """Return the number of descriptors of shared memory of this process."""
    found = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum("memfd:" in name for name in found)


def received(iterator: stoker.Iterator) -> list[weakref.ref[Any]]:
    """Read some elements; return references to others, when some have arrived."""
    for _ in range(FIRST):
        next(iterator)
    stream: Any = iterator._stream
    order = stream._logic._order

    def references() -> list[weakref.ref[Any]]:
        with stream._lock:
            queues = (
                [x.chunks for x in order._tasks.values()]
                if isinstance(order, RoundOrder)
                else [order._chunks]
            )
            return [weakref.ref(x) for queue in queues for chunk in queue for x in chunk.elements]

    assert eventually(lambda: len(references()) > 1)
    return references()


def are_dead(references: list[weakref.ref[Any]]) -> bool:
    gc.collect()
    return not any(reference() is not None for reference in references)


@pytest.mark.parametrize("transport", ["tcp", "local", "grpc"])
def test_close_releases_what_has_arrived(transport):
    with Service(1, worker=worker_fields_for(transport)) as service:
        dataset = images().distribute(
            service.target, processing_mode="distributed_epoch", data_transfer_protocol=transport
        )
        with iterator_with_deadline(dataset) as iterator:
            references = received(iterator)
            iterator.close()
            # A thread of the worker in this process may be about to drop its last reference.
            assert eventually(lambda: are_dead(references))


@pytest.mark.skipif(sys.platform != "linux", reason="memfd")
def test_close_releases_shared_memory():
    with stoker.LocalCluster(1) as cluster:
        before = memfds()
        dataset = images().distribute(
            cluster, processing_mode="distributed_epoch", data_transfer_protocol="shm"
        )
        with iterator_with_deadline(dataset) as iterator:
            references = received(iterator)
            assert memfds() > before
            iterator.close()
            # A thread of the worker in this process may be about to drop its last reference.
            assert eventually(lambda: are_dead(references))
            assert memfds() == before


def consumer(service: Service, dataset: stoker.Dataset) -> stoker.Dataset:
    return dataset.with_options(stoker.Options(finite_coordinated=True)).distribute(
        service.target,
        processing_mode="parallel_epochs",
        job_name="in step",
        num_consumers=1,
        consumer_index=0,
        data_transfer_protocol="tcp",
    )


def test_closed_consumer_releases_what_has_arrived():
    with Service(1) as service, iterator_with_deadline(consumer(service, images())) as iterator:
        references = received(iterator)
        stream: Any = iterator._stream
        references.append(weakref.ref(stream._logic._order._latest.elements[0]))
        iterator.close()
        assert are_dead(references)


def test_consumer_at_its_end_refers_to_no_element():
    with Service(1) as service, iterator_with_deadline(consumer(service, images(8))) as iterator:
        references = [weakref.ref(element) for element in iterator]
        assert len(references) == 8
        assert are_dead(references)
