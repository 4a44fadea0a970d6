"""tf.data.experimental.service: elements are requested, and errors raised, when TensorFlow does."""

import pytest

from stoker.compat import tf
from tests.serving import Service, read

service = tf.data.experimental.service


def _distributed(target: str, count: int, mode: str = "parallel_epochs") -> tf.data.Dataset:
    return tf.data.Dataset.range(count).apply(service.distribute(mode, target))


def _restart_workers(running: Service) -> None:
    for worker in list(running.workers):
        worker.stop()
        running.add_worker()


def test_an_iterator_that_is_not_read_gets_no_element():
    with Service(2) as running, _distributed(running.target, 100).iterator() as iterator:
        _restart_workers(running)
        assert sorted(read(iterator)) == sorted([*range(100)] * 2)


def test_few_elements_are_requested_ahead_at_first():
    with Service(1) as running, _distributed(running.target, 1000).iterator() as iterator:
        assert read(iterator, 50) == list(range(50))
        _restart_workers(running)
        ahead = list(iter(iterator.__next__, 0))
        assert ahead == list(range(50, 50 + len(ahead)))
        assert len(ahead) <= 26
        assert read(iterator) == list(range(1, 1000))


def test_one_outstanding_request_waits_for_the_first_read():
    with Service(1) as running:
        distribute = service.distribute(
            "parallel_epochs", running.target, max_outstanding_requests=1
        )
        with tf.data.Dataset.range(9).apply(distribute).iterator() as iterator:
            _restart_workers(running)
            assert read(iterator) == list(range(9))


def test_tasks_run_when_an_iterator_is_open():
    with Service(1) as running:
        dataset_id = service.register_dataset(running.target, tf.data.Dataset.range(3))
        by_id = service.from_dataset_id("parallel_epochs", running.target, dataset_id)
        for count, dataset in enumerate([_distributed(running.target, 3), by_id], 1):
            running.callback(dataset.iterator().close)
            assert running.workers[0].num_tasks() == count


def test_an_iterator_opens_without_a_dispatcher():
    with Service(1) as running:
        dataset = _distributed(running.target, 3)
        running.dispatcher.stop()
        dataset.iterator().close()


def test_a_source_that_cannot_be_split_is_an_error_when_read():
    with Service(1) as running:
        inner = _distributed(running.target, 3)
        dataset = inner.apply(service.distribute("distributed_epoch", running.target))
        with pytest.raises(
            tf.errors.UnimplementedError, match="split providers for dataset of type"
        ):
            read(dataset)
