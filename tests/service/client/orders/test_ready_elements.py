"""Iterators of received chunks refer to no large element that they have yielded."""

import weakref
from collections.abc import Callable
from operator import length_hint
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.elements.sizes import chunk_bytes
from stoker.service import CrossTrainerCache
from stoker.service.client.orders.ready_elements import ready_elements
from tests.manual_clock import ManualClock
from tests.serving import Service, iterator_with_deadline

LARGE = 100_000
COUNT = 60


def _ready(elements):
    return ready_elements(elements, chunk_bytes(elements))


def test_elements_come_in_order_with_a_length_hint():
    ready = _ready([np.zeros(LARGE), np.ones(LARGE)])
    assert length_hint(ready) == 2
    assert [int(array[0]) for array in ready] == [0, 1]
    assert length_hint(ready) == 0
    assert next(ready, None) is None


def test_yielded_array_has_no_other_reference():
    chunk = [np.zeros(LARGE), np.zeros(LARGE)]
    released = weakref.ref(chunk[0])
    ready = _ready(chunk)
    next(ready)
    assert released() is None
    assert len(chunk) == 2  # flow control counts it


def test_a_few_large_elements_are_released_after_small_ones():
    chunk = [np.zeros(1), np.zeros(LARGE)]
    released = weakref.ref(chunk[1])
    assert len(list(_ready(chunk))) == 2
    assert released() is None


@pytest.mark.parametrize(
    "chunk",
    [[1, "a", None], [bytes(LARGE)] * 3, [None, bytes(LARGE)], [np.zeros(1000)] * 100],
)
def test_list_of_plain_or_small_elements_is_not_changed(chunk):
    before = list(chunk)
    assert len(list(_ready(chunk))) == len(before)
    assert all(one is other for one, other in zip(chunk, before, strict=True))


def _text(x: int) -> bytes:
    return bytes([x]) * LARGE


def _array(x: int) -> Any:
    return np.full(LARGE, x, np.uint8)


def _mixed(x: int) -> Any:
    return (_text, _array)[x % 2](x) if x % 3 else x


def _numbers(elements: list[Any]) -> list[int]:
    """Return the numbers that the elements were made of."""
    return [int(x[0]) if isinstance(x, bytes) or np.ndim(x) else int(x) for x in elements]


def _read_locally(
    make: Callable[[int], Any], service: Service, epochs: int | None = 1, **fields: Any
) -> stoker.Dataset:
    """Return elements that come as objects from a worker of this process, several in a chunk."""
    return (
        stoker.Dataset.range(COUNT)
        .map(make)
        .repeat(epochs)
        .distribute(
            service.dispatcher,
            data_transfer_protocol="local",
            max_outstanding_requests=16,
            job_name="job",
            **fields,
        )
    )


@pytest.mark.parametrize("make", [_text, _array, _mixed])
def test_elements_that_a_reader_gives_back_are_whole(make):
    with Service(1) as service:
        ours, theirs = (
            _read_locally(make, service, processing_mode="distributed_epoch") for _ in range(2)
        )
        with ours.iterator() as second, iterator_with_deadline(second):
            found = [next(second)]
            with iterator_with_deadline(theirs) as first:
                found += [next(first) for _ in range(3)]
            found += second
    assert sorted(_numbers(found)) == list(range(COUNT))


@pytest.mark.parametrize("make", [_text, _array, _mixed])
def test_elements_are_whole_after_a_connection_broke(make):
    clock = ManualClock()
    with Service(1, clock=clock) as service, clock.running():
        dataset = _read_locally(make, service, processing_mode="parallel_epochs")
        found = []
        with iterator_with_deadline(dataset) as iterator:
            for number, element in enumerate(iterator):
                found.append(element)
                if number % 7 == 3:
                    shell: Any = service.workers[0]._shell
                    for channel in list(shell._connections._channels.values()):
                        channel.connection.sever()
    assert _numbers(found) == list(range(COUNT))


@pytest.mark.parametrize("make", [_text, _array, _mixed])
def test_trainers_that_share_a_cache_get_whole_elements(make):
    with Service(1) as service:
        iterators = [
            _read_locally(
                make,
                service,
                epochs=None,
                processing_mode="parallel_epochs",
                cross_trainer_cache=CrossTrainerCache(name),
            ).iterator()
            for name in ("a", "b")
        ]
        with iterators[0] as one, iterators[1] as other, iterator_with_deadline(one):
            for number in range(COUNT // 2):
                assert _numbers([next(one), next(other)]) == [number, number]
