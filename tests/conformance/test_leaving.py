"""Workers and dispatchers that stop, and the losses that clients hear of."""

import logging
import threading
import time

import numpy as np
import pytest

import stoker
from stoker.errors import (
    DataLossError,
    InvalidArgumentError,
    UnavailableError,
)
from stoker.service import distribute
from tests.serving import eventually, read, reading

QUIET = {"shutdown_quiet_period_ms": 30_000}


def _slow(x: int) -> int:
    time.sleep(1e-4)
    return x


def _stop_in_background(worker) -> threading.Thread:
    thread = threading.Thread(target=worker.stop)
    thread.start()
    return thread


def test_a_draining_worker_delivers_the_splits_it_has_begun(serve, transport, caplog):
    service = serve(2, worker=QUIET)
    dataset = (
        stoker.Dataset.range(5_000)
        .map(_slow)
        .distribute(
            service.target,
            processing_mode="distributed_epoch",
            data_transfer_protocol=transport,
            on_loss="raise",
        )
    )
    with dataset.iterator() as iterator:
        found = read(iterator, 100)
        assert eventually(lambda: all(worker.num_tasks() for worker in service.workers))
        stopping = _stop_in_background(service.workers[0])
        found += read(iterator)
        stopping.join()
    assert sorted(found) == list(range(5_000))
    assert iterator.stats()["tasks_lost"] == 0
    assert not [record for record in caplog.records if record.name == "stoker.client"]


def test_an_endless_dynamic_pipeline_drains(serve):
    service = serve(1, worker=QUIET)
    dataset = (
        stoker.Dataset.range(100)
        .repeat()
        .shuffle(50)
        .batch(10)
        .distribute(service.target, processing_mode="distributed_epoch")
    )
    with reading(dataset.iterator()):
        service.workers[0].stop()
    assert service.dispatcher.num_workers() == 0


def test_off_computes_no_more_while_it_drains(serve):
    service = serve(1, worker=QUIET)
    dataset = stoker.Dataset.range(10**9).apply(distribute("parallel_epochs", service.target))
    with reading(dataset.iterator()) as found:
        service.workers[0].stop()
        assert eventually(lambda: service.dispatcher.num_workers() == 0)
        computed = len(found)
        assert found == list(range(computed))
        service.add_worker()
        assert eventually(lambda: len(found) > computed + 10)
    assert found[computed : computed + 10] == list(range(10))


def test_a_second_stop_ends_the_drain(serve):
    service = serve(1, worker=QUIET)
    dataset = stoker.Dataset.range(10**6).distribute(
        service.target, processing_mode="distributed_epoch"
    )
    with dataset.iterator() as iterator:
        read(iterator, 1)
        stopping = _stop_in_background(service.workers[0])
        assert eventually(lambda: service.tasks[0].cut)
        service.workers[0].stop(drain=False)
        stopping.join()
        assert eventually(lambda: service.dispatcher.num_workers() == 0)


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_a_loss_is_raised_once_and_reading_goes_on(serve, mode):
    service = serve(2)
    dataset = stoker.Dataset.range(100_000).map(lambda x: np.full(100, x))
    dataset = dataset.apply(distribute(mode, service.target, on_loss="raise"))
    with dataset.iterator() as iterator:
        read(iterator, 10)
        assert eventually(lambda: all(worker.num_tasks() for worker in service.workers))
        # A worker that has computed nothing yet loses nothing under "parallel_epochs".
        assert eventually(lambda: all(task.undelivered for task in service.tasks))
        address = service.workers[0].address
        service.workers[0].stop()
        losses = []
        elements = 0
        while True:
            try:
                next(iterator)
                elements += 1
            except DataLossError as error:
                losses.append(str(error))
            except StopIteration:
                break
    [loss] = losses
    assert loss.startswith(f"worker {address} was lost: it was stopped. ")
    assert elements > 0
    assert iterator.stats()["tasks_lost"] == 1


def test_a_worker_that_has_computed_nothing_loses_nothing(serve, tmp_path):
    gate = tmp_path / "open"
    gate.touch()

    def wait_at_the_gate(x: int) -> int:
        while not gate.exists():
            time.sleep(0.01)
        return x

    service = serve(1)
    dataset = stoker.Dataset.range(50_000).map(wait_at_the_gate)
    dataset = dataset.apply(distribute("parallel_epochs", service.target, on_loss="raise"))
    with dataset.iterator() as iterator:
        found = read(iterator, 10)
        gate.unlink()
        late = service.add_worker()
        assert eventually(late.num_tasks)
        stopping = _stop_in_background(late)
        assert eventually(lambda: service.dispatcher.num_workers() == 1)
        gate.touch()
        found += read(iterator)
        stopping.join()
    assert found == list(range(50_000))
    assert iterator.stats()["tasks_lost"] == 0


def test_the_elements_of_a_computed_task_are_counted(serve, caplog):
    service = serve(1, worker={"buffer_bytes": 64 << 20})
    dataset = stoker.Dataset.range(1000).map(lambda x: np.full(1000, x))
    with dataset.distribute(service.target, job_name="one").iterator() as iterator:
        read(iterator, 10)
        assert eventually(lambda: service.tasks[0].ended)
        left = service.tasks[0].undelivered
        with caplog.at_level(logging.WARNING, "stoker.client"):
            service.workers[0].stop()
            read(iterator)
    assert 0 < iterator.stats()["elements_lost"] <= left
    assert "elements are lost" in caplog.text


def test_other_values_of_on_loss_are_refused():
    with pytest.raises(InvalidArgumentError, match="`on_loss` must be one of warn, raise, got 'x'"):
        distribute("parallel_epochs", "localhost:1", on_loss="x")


def test_clients_of_a_stopped_dispatcher_end_without_waiting(serve, caplog):
    service = serve(1)
    # More than the worker computes ahead: the dispatcher does not know the end of the task.
    dataset = stoker.Dataset.range(10**6).apply(distribute("parallel_epochs", service.target))
    with dataset.iterator() as iterator:
        read(iterator, 1)
        began = time.monotonic()
        with caplog.at_level(logging.WARNING, "stoker.client"):
            service.dispatcher.stop()
            with pytest.raises(UnavailableError, match="was stopped, and no worker has anything"):
                read(iterator)
    assert "it keeps no journal" in caplog.text
    assert time.monotonic() - began < 9  # the client would wait 10 s for a dispatcher that died
