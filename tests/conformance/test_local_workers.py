"""BEHAVIOUR.md, target_workers: workers of this process and of others, and their tags."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from stoker import Dataset
from stoker.compat import tf
from stoker.errors import FailedPreconditionError
from stoker.service import WorkerConfig, WorkerServer, distribute
from stoker.service.worker.processes.process import WorkerProcess
from tests.serving import Service, eventually, read, tasks_of

OFF, DYNAMIC = "parallel_epochs", "distributed_epoch"
COLOCATED = ["COLOCATED"]


@contextmanager
def _remote_workers(service: Service, *tags: list[str]) -> Iterator[None]:
    """Run a worker with each of the `tags` in a process of its own."""
    with ExitStack() as stack:
        processes = []
        for each in tags:
            config = WorkerConfig(dispatcher_address=service.target, worker_tags=each)
            processes.append(WorkerProcess(config))
            stack.callback(processes[-1].stop)
        for process in processes:
            process.wait_serving()
        yield


@pytest.fixture(scope="module")
def two_remote() -> Iterator[Service]:
    """A service with two workers in other processes, for all tests: they take seconds to start."""
    with Service(0) as service, _remote_workers(service, [], []):
        yield service


@pytest.fixture
def serve_both(two_remote) -> Iterator[Callable[[int, int], Service]]:
    """Return a service with some workers in this process, and none or two in others."""
    with ExitStack() as stack:

        def start(local: int, remote: int) -> Service:
            service = two_remote if remote else stack.enter_context(Service(0))
            for _ in range(local):
                stack.enter_context(WorkerServer(dispatcher_address=service.target))
            return service

        yield start


def _numbers(service: Service, count: int = 10, **fields) -> Dataset:
    return Dataset.range(count).apply(distribute(OFF, service.target, **fields))


# ── LOCAL ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("remote", [0, 2])
@pytest.mark.parametrize("local", [1, 3])
def test_local_reads_only_workers_of_this_process(serve_both, local, remote):
    found = read(_numbers(serve_both(local, remote), target_workers="local"))
    assert Counter(found) == dict.fromkeys(range(10), local)


@pytest.mark.parametrize("name", [None, "repeated"])
def test_repeated_epochs_read_local_workers(serve_both, name):
    dataset = _numbers(serve_both(2, 2), target_workers="LOCAL", job_name=name)
    for _ in range(3):
        assert Counter(read(dataset.prefetch(10))) == dict.fromkeys(range(10), 2)
    assert Counter(read(dataset.repeat(3))) == dict.fromkeys(range(10), 6)


@pytest.mark.parametrize("remote", [0, 2])
@pytest.mark.parametrize("local", [1, 3])
def test_local_workers_share_all_splits(serve_both, local, remote):
    target = serve_both(local, remote).target
    dataset = Dataset.range(100).distribute(target, DYNAMIC, target_workers="LOCAL")
    assert sorted(read(dataset)) == list(range(100))


def test_an_empty_dataset_of_local_workers_ends(serve_both):
    assert read(_numbers(serve_both(3, 2), 0, target_workers="LOCAL")) == []


@pytest.mark.parametrize("name", [None, "from the beginning"])
def test_each_local_iterator_starts_from_the_beginning(serve_both, name):
    transformation = distribute(OFF, serve_both(1, 2).target, name, target_workers="LOCAL")
    dataset = Dataset.range(10**6).repeat().apply(transformation)
    for _ in range(5):
        with dataset.iterator() as iterator:
            assert read(iterator, 5) == list(range(5))


def test_a_local_worker_may_restart_between_epochs(serve):
    service = serve(1)
    dataset = _numbers(service, 10**9, target_workers="LOCAL", job_name="one")
    with dataset.iterator() as iterator:
        assert read(iterator, 10) == list(range(10))
    service.workers[0].stop()
    service.add_worker()
    with dataset.iterator() as iterator:
        assert read(iterator, 10) == list(range(10))


def test_tasks_of_a_closed_local_iterator_are_freed(serve):
    service = serve(2)
    with _numbers(service, 10**9, target_workers="LOCAL", job_name="one").iterator() as iterator:
        read(iterator, 10)
        assert eventually(lambda: len(service.tasks) == 2)
    assert eventually(lambda: not service.tasks)


@pytest.mark.parametrize("remote", [0, 2])
def test_a_local_iteration_is_not_read_twice(serve_both, remote):
    """A dataset that is made again in a loop would read from the beginning each time."""
    service = serve_both(1, remote)
    fields: dict[str, Any] = {"job_name": f"made again {remote}", "target_workers": "LOCAL"}
    assert read(_numbers(service, 10**9, **fields), 10) == list(range(10))
    with pytest.raises(FailedPreconditionError, match=r"which has been deleted\."):
        read(_numbers(service, 10**9, **fields), 10)
    assert read(_numbers(service, 10**9, **fields | {"job_name": "other"}), 10) == list(range(10))


@pytest.mark.parametrize("remote", [0, 2])
def test_an_unread_local_iterator_is_deleted_too(serve_both, remote):
    """It would miss what the closed one has read."""
    service = serve_both(1, remote)
    fields: dict[str, Any] = {"job_name": f"unread {remote}", "target_workers": "LOCAL"}
    with ExitStack() as stack:
        iterators = [
            stack.enter_context(_numbers(service, 10**9, **fields).iterator()) for _ in range(3)
        ]
        assert len(read(iterators[0], 10)) == 10
        iterators[0].close()
        deleted: list[Any] = [*iterators[1:], *iterators[1:], _numbers(service, 10**9, **fields)]
        for each in deleted:
            with pytest.raises(FailedPreconditionError, match=r"which has been deleted\."):
                read(each, 1)


def test_local_iterators_that_are_read_share_the_elements(serve):
    """Also one that is opened while others are read, and read after one of them was closed."""
    service = serve(1)
    fields: dict[str, Any] = {"job_name": "shared", "target_workers": "LOCAL"}
    fields["max_outstanding_requests"] = 1
    with ExitStack() as stack:
        first, second, third = [
            stack.enter_context(_numbers(service, 100, **fields).iterator()) for _ in range(3)
        ]
        found = read(first, 10) + read(second, 10)
        first.close()
        found += read(third, 10) + read(second)
        found += read(third)
    assert sorted(found) == list(range(100))


def test_a_local_iterator_that_was_not_read_closes_alone(serve):
    tf_service = tf.data.experimental.service  # its iterators open when they know their tasks
    distribute = tf_service.distribute(OFF, serve(1).target, "alone", target_workers="LOCAL")
    with Dataset.range(100).apply(distribute).iterator() as second:
        Dataset.range(100).apply(distribute).iterator().close()
        assert read(second) == list(range(100))


def test_a_local_iterator_that_has_ended_closes_alone(serve):
    service = serve(1)
    fields: dict[str, Any] = {"job_name": "ended", "target_workers": "LOCAL"}
    with _numbers(service, **fields).iterator() as second:
        with _numbers(service, max_outstanding_requests=1, **fields).iterator() as first:
            found = read(first)
        assert sorted(found + read(second)) == list(range(10))


def test_jobs_of_other_names_keep_their_local_tasks(serve):
    service = serve(1)
    with _numbers(service, job_name="one", target_workers="LOCAL").iterator() as one:
        assert read(_numbers(service, job_name="two", target_workers="LOCAL"), 5) == [*range(5)]
        assert read(one) == list(range(10))


def test_a_local_iteration_that_was_read_is_empty(serve):
    service = serve(1)
    fields: dict[str, Any] = {"job_name": "one", "target_workers": "LOCAL"}
    assert read(_numbers(service, **fields)) == list(range(10))
    assert read(_numbers(service, **fields)) == []


def test_the_rest_of_local_splits_is_for_the_next_client(serve):
    service = serve(1)
    fields: dict[str, Any] = {"job_name": "one", "target_workers": "LOCAL"}
    found = read(Dataset.range(100).distribute(service.target, **fields), 10)
    found += read(Dataset.range(100).distribute(service.target, **fields))
    assert sorted(found) == list(range(100))


# ── ANY and AUTO ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("local", "remote"), [(0, 2), (1, 2), (3, 2), (3, 0)])
def test_any_and_auto_read_local_and_remote_workers(serve_both, local, remote):
    """Anonymous jobs of one dataset may differ in `target_workers`."""
    service = serve_both(local, remote)
    read_by = {"AUTO": local + remote, "ANY": local + remote, **({"LOCAL": local} if local else {})}
    for target, workers in read_by.items():
        found = read(_numbers(service, target_workers=target))
        assert Counter(found) == dict.fromkeys(range(10), workers)


def test_clients_share_local_and_remote_workers(serve_both):
    service = serve_both(1, 2)
    with ExitStack() as stack:
        datasets = [_numbers(service, 300, job_name="shared") for _ in range(8)]
        iterators = [stack.enter_context(dataset.iterator()) for dataset in datasets]
        found = [x for iterator in iterators for x in read(iterator)]
    assert Counter(found) == dict.fromkeys(range(300), 3)


# ── tags ─────────────────────────────────────────────────────────────────────────────────────────
def test_auto_reads_no_remote_colocated_worker(serve):
    service = serve(1, worker={"worker_tags": COLOCATED})
    with _remote_workers(service, [*COLOCATED, "x"], COLOCATED):
        assert Counter(read(_numbers(service))) == dict.fromkeys(range(10), 1)
        service.add_worker(worker_tags=COLOCATED)
        service.add_worker(worker_tags=[])
        assert Counter(read(_numbers(service))) == dict.fromkeys(range(10), 3)
        # Those that are not read get no splits.
        dataset = Dataset.range(100).distribute(service.target, DYNAMIC)
        assert sorted(read(dataset)) == list(range(100))


def test_other_tags_have_no_effect(serve):
    service = serve(1, worker={"worker_tags": ["a", "b"]})
    with _remote_workers(service, ["a", "COLOCATED_2"]):
        assert Counter(read(_numbers(service))) == dict.fromkeys(range(10), 2)


def test_a_late_colocated_worker_is_not_read(serve):
    service = serve(1, worker={"worker_tags": COLOCATED})
    with _numbers(service, 300).iterator() as iterator:
        found = read(iterator, 100)
        with _remote_workers(service, COLOCATED, []):
            assert eventually(lambda: tasks_of(iterator) == 2)
            assert service.dispatcher.num_workers() == 3
            found += read(iterator)
    assert Counter(found) == dict.fromkeys(range(300), 2)
