"""BEHAVIOUR.md, Jobs; and reading by `from_dataset_id`."""

import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest

import stoker
from stoker.errors import InvalidArgumentError, NotFoundError
from stoker.service import distribute, from_dataset_id, messages, register_dataset
from tests.manual_clock import ManualClock
from tests.serving import eventually, iterator_with_deadline, read

MODES = ["parallel_epochs", "distributed_epoch"]


def _read_concurrently(datasets: list[stoker.Dataset]) -> list[list]:
    """Read each dataset in its own thread, concurrently, and return the elements of each."""
    barrier = threading.Barrier(len(datasets))

    def run(dataset: stoker.Dataset) -> list:
        barrier.wait()
        return read(dataset)

    with ThreadPoolExecutor(len(datasets)) as pool:
        return list(pool.map(run, datasets))


@pytest.mark.parametrize("clients", [2, 5])
def test_clients_of_a_dynamic_job_share_each_element_once(serve, clients):
    target = serve(2).target
    datasets = [
        stoker.Dataset.range(2000).distribute(target, job_name="one") for _ in range(clients)
    ]
    assert sorted(chain.from_iterable(_read_concurrently(datasets))) == list(range(2000))


def test_clients_of_an_off_job_share_one_workers_elements(serve):
    target = serve(1).target
    transformation = distribute("parallel_epochs", target, job_name="one")
    datasets = [stoker.Dataset.range(2000).apply(transformation) for _ in range(3)]
    assert sorted(chain.from_iterable(_read_concurrently(datasets))) == list(range(2000))


def test_two_clients_of_one_job_both_get_elements(serve):
    target = serve(1).target
    one, other = (
        stoker.Dataset.range(10**6).repeat().distribute(target, job_name="one") for _ in range(2)
    )
    with one.iterator() as first, other.iterator() as second:
        assert len(read(first, 10)) == len(read(second, 10)) == 10


@pytest.mark.parametrize("mode", MODES)
def test_jobs_of_different_names_yield_every_element(serve, mode):
    target = serve(1).target
    datasets = [
        stoker.Dataset.range(500).apply(distribute(mode, target, job_name=name))
        for name in ("one", "two")
    ]
    assert [sorted(found) for found in _read_concurrently(datasets)] == [list(range(500))] * 2


def test_anonymous_jobs_yield_every_element(serve):
    target = serve(1).target
    datasets = [stoker.Dataset.range(100).distribute(target) for _ in range(2)]
    assert [read(dataset) for dataset in datasets] == [list(range(100))] * 2


@pytest.mark.parametrize("mode", MODES)
def test_drained_epoch_is_empty_for_another_client(serve, mode):
    target = serve(2).target
    one, other = (
        stoker.Dataset.range(10).apply(distribute(mode, target, job_name="one")) for _ in range(2)
    )
    whole = read(one)
    assert Counter(whole) == Counter(list(range(10)) * (2 if mode == "parallel_epochs" else 1))
    assert read(other) == []
    assert Counter(read(other)) == Counter(whole)
    assert read(one) == []


def test_epoch_drained_by_an_open_client_is_empty(serve):
    target = serve(1).target
    one, other = (stoker.Dataset.range(10).distribute(target, job_name="one") for _ in range(2))
    with one.iterator() as first:
        assert read(first, 10) == list(range(10))
        assert read(other) == []


def test_unread_elements_of_a_closed_client_go_to_another(serve, transport):
    target = serve(1).target
    settings = {"job_name": "one", "data_transfer_protocol": transport}
    one, other = (stoker.Dataset.range(1000).distribute(target, **settings) for _ in range(2))
    with one.iterator() as first:
        first_elements = read(first, 3)
        with other.iterator() as second:
            first.close()
            assert sorted(first_elements + read(second)) == list(range(1000))


def test_unread_elements_of_a_closed_client_go_to_the_next(serve, transport):
    """Also if the first leaves after the worker has computed everything."""
    service = serve(1)
    settings = {"job_name": "one", "data_transfer_protocol": transport}
    one, other = (
        stoker.Dataset.range(1000).distribute(service.target, **settings) for _ in range(2)
    )
    with one.iterator() as first:
        first_elements = read(first, 10)
        assert eventually(lambda: all(task.ended for task in service.tasks))
    assert sorted(first_elements + read(other)) == list(range(1000))


def test_clients_of_one_thread_do_not_wait_for_each_other(serve):
    service = serve(1)
    one, other = (
        stoker.Dataset.range(100).distribute(service.target, job_name="one") for _ in range(2)
    )
    with one.iterator() as first, other.iterator() as second:
        elements = read(first, 1)
        elements += read(second)
        elements += read(first)
    assert sorted(elements) == list(range(100))


def test_an_anonymous_job_stops_with_its_iterator(serve):
    service = serve(1)
    with stoker.Dataset.range(10**9).distribute(service.target).iterator() as iterator:
        assert next(iterator) == 0
    assert eventually(lambda: service.workers[0].num_tasks() == 0)


def test_a_first_epoch_read_by_others_is_empty_with_a_warning(serve, caplog):
    target = serve(1).target
    one, other = (stoker.Dataset.range(10).distribute(target, job_name="one") for _ in range(2))
    assert read(one) == list(range(10))
    with caplog.at_level(logging.WARNING, "stoker"):
        assert read(other) == []
        assert read(one) == list(range(10))  # the second epoch
        assert read(other) == []
    [record] = caplog.records
    assert "first epoch of job 'one' were read before" in record.message
    assert "another job_name" in record.message


def test_an_endless_repeat_passes_epochs_that_others_have_read(serve):
    target = serve(1).target
    one, other = (stoker.Dataset.range(10).distribute(target, job_name="one") for _ in range(2))
    for _ in range(3):
        assert read(one) == list(range(10))
    with other.repeat().iterator() as late:
        assert read(late, 10) == list(range(10))
        assert late.stats()["epochs_shared"] == 3


def test_an_endless_repeat_of_nothing_ends_for_a_lone_client(serve):
    target = serve(1).target
    assert read(stoker.Dataset.range(0).distribute(target, job_name="one").repeat()) == []


@pytest.mark.parametrize(
    ("field", "first", "second"),
    [
        ("processing_mode", {"processing_mode": "parallel_epochs"}, {}),
        ("target_workers", {"target_workers": "ANY"}, {"target_workers": "AUTO"}),
    ],
)
def test_conflicting_parameters_are_an_error_naming_both(serve, field, first, second):
    target = serve(1).target
    dataset = stoker.Dataset.range(10).repeat()
    with dataset.distribute(target, job_name="one", **first).iterator() as iterator:
        assert next(iterator) == 0
        with pytest.raises(InvalidArgumentError, match=f"the same `{field}`") as caught:
            read(dataset.distribute(target, job_name="one", **second))
    existing = {"processing_mode": "OFF", "target_workers": "ANY"}[field]
    requested = {"processing_mode": "DYNAMIC", "target_workers": "AUTO"}[field]
    named = f"Existing {field.replace('_', ' ')}: <{existing}>; got <{requested}>"
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "other",
    [
        stoker.Dataset.range(10).map(lambda x: x).batch(2),
        stoker.Dataset.range(11).map(lambda x: x),
        stoker.Dataset.range(10).map(lambda x: x, element_spec=stoker.TensorSpec((), np.float32)),
    ],
)
def test_clients_of_one_job_must_agree_on_nodes_and_spec(serve, other):
    target = serve(1).target
    spec = stoker.TensorSpec((), np.int64)
    dataset = stoker.Dataset.range(10).map(lambda x: x, element_spec=spec)
    with dataset.distribute(target, job_name="one").iterator() as iterator:
        assert next(iterator) == 0
        with pytest.raises(InvalidArgumentError, match=r"Existing: <.*map.*>; got <.*map"):
            read(other.distribute(target, job_name="one"))


def test_other_function_bytes_warn_and_the_first_win(serve, caplog):
    target = serve(1).target
    one, other = (
        stoker.Dataset.range(4).map(lambda x, rank=rank: (rank, x)).distribute(target, job_name="j")
        for rank in range(2)
    )
    assert read(one) == [(0, x) for x in range(4)]
    with caplog.at_level(logging.WARNING, "stoker.client"):
        assert read(other.iterator(epoch=1)) == [(0, x) for x in range(4)]
    assert "job 'j' was created with another function at tests/conformance/test_jobs.py:" in (
        caplog.text
    )


def test_identical_clients_are_not_warned(serve, caplog):
    target = serve(1).target
    dataset = stoker.Dataset.range(4).map(lambda x: x)
    with caplog.at_level(logging.WARNING, "stoker"):
        for epoch in range(2):
            again = dataset.distribute(target, job_name="j")
            assert read(again.iterator(epoch=epoch)) == [0, 1, 2, 3]
    assert not caplog.records


def test_identical_datasets_have_one_id(serve):
    target = serve(0).target
    dataset = stoker.Dataset.range(10).map(lambda x: x)
    assert register_dataset(target, dataset) == register_dataset(target, dataset)
    assert register_dataset(target, dataset) != register_dataset(target, dataset.take(5))


def test_explicit_id_registered_twice_is_one_dataset(serve):
    service = serve(1)
    for offset in range(2):
        dataset = stoker.Dataset.range(3).map(lambda x, offset=offset: x + offset)
        assert register_dataset(service.target, dataset, dataset_id="mine") == "mine"
    assert len(service.state.datasets) == 1
    assert read(from_dataset_id("parallel_epochs", service.target, "mine")) == [0, 1, 2]


def test_explicit_id_does_not_replace_the_generated_one(serve):
    target = serve(1).target
    dataset = stoker.Dataset.range(3)
    first = register_dataset(target, dataset)
    assert register_dataset(target, dataset, dataset_id="mine") == "mine"
    assert register_dataset(target, dataset) == first
    for dataset_id in (first, "mine"):
        assert read(from_dataset_id("parallel_epochs", target, dataset_id)) == [0, 1, 2]


def test_a_dataset_without_an_id_does_not_adopt_an_explicit_one(serve):
    service = serve(1)
    dataset = stoker.Dataset.range(3).map(lambda x: x)
    assert register_dataset(service.target, dataset, dataset_id="mine") == "mine"
    generated = register_dataset(service.target, dataset)
    assert generated != "mine"
    assert register_dataset(service.target, dataset) == generated
    assert read(from_dataset_id("parallel_epochs", service.target, generated)) == [0, 1, 2]
    # A client's own dataset is under the generated id, too.
    assert sorted(dataset.distribute(service.target)) == [0, 1, 2]
    assert service.state.datasets.keys() == {"mine", generated}


@pytest.mark.parametrize(
    ("dataset", "cardinality"),
    [
        (stoker.Dataset.range(3).repeat(), stoker.INFINITE_CARDINALITY),
        (stoker.Dataset.range(0), 0),
        (stoker.Dataset.range(3), stoker.UNKNOWN_CARDINALITY),
    ],
)
def test_the_cardinality_is_learned_also_with_an_element_spec(serve, dataset, cardinality):
    target = serve(0).target
    dataset_id = register_dataset(target, dataset)
    spec = dataset.element_spec
    for mode in ("parallel_epochs", "distributed_epoch"):
        assert from_dataset_id(mode, target, dataset_id, spec).cardinality() == cardinality
        assert from_dataset_id(mode, target, dataset_id).cardinality() == cardinality


def test_the_cardinality_is_unknown_until_the_dataset_is_registered(serve):
    target = serve(0).target
    dataset = stoker.Dataset.range(3).repeat()
    early = from_dataset_id("parallel_epochs", target, "later", dataset.element_spec)
    assert early.cardinality() == stoker.UNKNOWN_CARDINALITY
    register_dataset(target, dataset, dataset_id="later")
    assert early.cardinality() == early.take(-1).cardinality() == stoker.INFINITE_CARDINALITY
    nobody = from_dataset_id("parallel_epochs", "localhost:1", "x", dataset.element_spec)
    assert nobody.cardinality() == stoker.UNKNOWN_CARDINALITY


def test_from_dataset_id_learns_the_element_spec(serve):
    target = serve(1).target
    dataset = stoker.Dataset.from_tensor_slices({"x": np.zeros((4, 2), np.float32)}).batch(2)
    learned = from_dataset_id("parallel_epochs", target, register_dataset(target, dataset))
    assert learned.element_spec == dataset.element_spec
    assert [batch["x"].shape for batch in read(learned)] == [(2, 2), (2, 2)]


@pytest.mark.parametrize(
    "spec",
    [
        stoker.TensorSpec((), np.float32),
        stoker.TensorSpec((2,), np.int64),
        (stoker.TensorSpec((), np.int64),),
        {"x": stoker.TensorSpec((), np.int64)},
    ],
)
def test_wrong_element_spec_is_an_error_when_read(serve, transport, spec):
    target = serve(1).target
    dataset_id = register_dataset(target, stoker.Dataset.range(3))
    wrong = from_dataset_id(
        "parallel_epochs", target, dataset_id, spec, data_transfer_protocol=transport
    )
    with pytest.raises(InvalidArgumentError, match=r"element_spec.*(float32|int64)"):
        read(wrong)


def test_datasets_by_id_may_use_the_same_job_name(serve):
    target = serve(1).target
    ids = [register_dataset(target, stoker.Dataset.range(k, k + 3)) for k in (0, 10)]
    found = [
        read(from_dataset_id("distributed_epoch", target, dataset_id, job_name="one"))
        for dataset_id in ids
    ]
    assert found == [[0, 1, 2], [10, 11, 12]]


def test_clients_by_id_share_a_named_job(serve):
    target = serve(1).target
    dataset_id = register_dataset(target, stoker.Dataset.range(1000))
    datasets = [
        from_dataset_id("distributed_epoch", target, dataset_id, job_name="one") for _ in range(2)
    ]
    assert sorted(chain.from_iterable(_read_concurrently(datasets))) == list(range(1000))


def test_unsplittable_dataset_by_id_is_refused_when_read(serve):
    target = serve(1).target
    dataset_id = register_dataset(target, stoker.Dataset.from_generator(lambda: iter([1])))
    assert read(from_dataset_id("parallel_epochs", target, dataset_id)) == [1]
    with pytest.raises(NotImplementedError, match="generator"):
        read(from_dataset_id("distributed_epoch", target, dataset_id))


# ── collection ───────────────────────────────────────────────────────────────────────────────────
SOON = {"job_gc_check_interval_ms": 10, "job_gc_timeout_ms": 10}


def test_job_without_clients_is_collected(serve):
    service = serve(1, **SOON)
    transformation = distribute("parallel_epochs", service.target, job_name="one")
    for _ in range(2):
        dataset = stoker.Dataset.range(10).apply(transformation)
        assert read(dataset) == list(range(10))
        assert eventually(lambda: not service.state.jobs)
        assert eventually(lambda: service.workers[0].num_tasks() == 0)


def test_anonymous_job_is_collected(serve):
    service = serve(1, **SOON)
    assert read(stoker.Dataset.range(10).distribute(service.target)) == list(range(10))
    assert eventually(lambda: not service.state.iterations)
    assert not service.state.jobs


def _wait_for_collection(service) -> None:
    """Wait until a job created now has been collected."""
    read(
        stoker.Dataset.range(1).apply(
            distribute("parallel_epochs", service.target, job_name="bait")
        )
    )
    assert eventually(lambda: "bait" not in service.state.jobs)


@pytest.mark.parametrize("collected", [False, True])
def test_named_dynamic_job_is_collected_only_if_configured(serve, collected):
    service = serve(1, gc_dynamic_sharding_jobs=collected, **SOON)
    dataset = stoker.Dataset.range(10).distribute(service.target, job_name="one")
    assert read(dataset) == list(range(10))
    _wait_for_collection(service)
    assert ("one" in service.state.jobs) is not collected
    again = stoker.Dataset.range(10).distribute(service.target, job_name="one")
    assert read(again) == (list(range(10)) if collected else [])


def test_job_with_a_live_client_is_never_collected(serve):
    service = serve(1, **SOON)
    transformation = distribute("parallel_epochs", service.target, job_name="one")
    with stoker.Dataset.range(10).apply(transformation).iterator() as iterator:
        assert next(iterator) == 0
        _wait_for_collection(service)
        assert "one" in service.state.jobs
        assert read(iterator) == list(range(1, 10))


def test_job_gc_timeout_of_minus_one_disables_collection(serve):
    service = serve(1, job_gc_check_interval_ms=10, job_gc_timeout_ms=-1)
    transformation = distribute("parallel_epochs", service.target, job_name="one")
    assert read(stoker.Dataset.range(10).apply(transformation)) == list(range(10))
    logic = service.dispatcher._shell.logic
    before = logic._next_collection
    assert eventually(lambda: logic._next_collection > before)
    assert "one" in service.state.jobs


# ── leases of clients ────────────────────────────────────────────────────────────────────────────
class _MutedSession:
    """Suppress the messages of a stream's session for a while."""

    def __init__(self, stream) -> None:
        self._session = stream._session
        self._send = self._session.send
        self._session.send = lambda message: None

    def resume(self) -> None:
        self._session.send = self._send


@pytest.mark.parametrize("elements_read", [0, 1])
def test_silent_client_is_released_and_gets_an_error(serve, transport, elements_read):
    clock = ManualClock()
    service = serve(1, client_timeout_ms=600, clock=clock)
    job = distribute("parallel_epochs", service.dispatcher, data_transfer_protocol=transport)
    dataset = stoker.Dataset.range(10).map(lambda x: np.full(1 << 20, x)).repeat().apply(job)
    with iterator_with_deadline(dataset) as iterator:
        assert eventually(lambda: service.state.clients)
        if elements_read:
            next(iterator)
        muted = _MutedSession(iterator._stream)
        clock.advance(1.0)
        assert not service.state.clients
        muted.resume()
        with pytest.raises(NotFoundError, match="Unknown iteration client id"):
            list(iterator)


def test_slow_client_keeps_its_lease(serve):
    clock = ManualClock()
    service = serve(1, client_timeout_ms=600, clock=clock)
    dataset = stoker.Dataset.range(10).distribute(service.dispatcher)
    with dataset.iterator() as iterator:
        assert next(iterator) == 0
        clock.advance(1.0)  # longer than the lease
        assert service.state.clients
        assert read(iterator) == list(range(1, 10))


# ── races ────────────────────────────────────────────────────────────────────────────────────────
def test_clients_racing_to_create_a_job_share_it(serve):
    target = serve(2).target
    for round_ in range(3):
        datasets = [
            stoker.Dataset.range(100).map(lambda x: x).distribute(target, job_name=f"race {round_}")
            for _ in range(2)
        ]
        one, other = _read_concurrently(datasets)
        assert sorted(one + other) == list(range(100))


def test_clients_that_come_and_go_lose_no_elements(serve, transport):
    target = serve(2).target
    settings = {"job_name": "one", "data_transfer_protocol": transport}
    keeper = stoker.Dataset.range(30_000).distribute(target, max_outstanding_requests=9, **settings)
    found: list[int] = []
    with keeper.iterator(epoch=0) as kept:
        for _ in range(10):
            passing = stoker.Dataset.range(30_000).distribute(target, **settings)
            with passing.iterator(epoch=0) as guest:
                found += read(guest, 7)
        found += read(kept)
    assert sorted(found) == list(range(30_000))


def test_job_messages_use_the_argument_names():
    assert messages.JobParameters.__struct_fields__[:2] == ("processing_mode", "target_workers")
