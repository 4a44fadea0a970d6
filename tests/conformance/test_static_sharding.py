"""BEHAVIOUR.md, Sharding: FILE, DATA, FILE_OR_DATA and HINT, with the workers of a list."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

import stoker
from stoker import Dataset, TFRecordWriter
from stoker.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from stoker.service import (
    DispatchServer,
    ShardingPolicy,
    WorkerConfig,
    WorkerServer,
    distribute,
    from_dataset_id,
    register_dataset,
)
from stoker.service.worker.processes.process import WorkerProcess
from tests.manual_clock import ManualClock
from tests.serving import Service, eventually, read, tasks_of

FILE, DATA = ShardingPolicy.FILE, ShardingPolicy.DATA
FILE_OR_DATA, HINT = ShardingPolicy.FILE_OR_DATA, ShardingPolicy.HINT
STATIC = [FILE, DATA, FILE_OR_DATA, HINT]


@pytest.fixture
def five(serve) -> Service:
    """A service with five workers, numbered in the order of their start."""
    return serve(5, worker_addresses=["localhost"] * 5)


@pytest.fixture
def names(tmp_path) -> list[str]:
    """The sorted names of ten files of ten records."""
    found = [str(tmp_path / f"{file}.tfrecord") for file in range(10)]
    for file, name in enumerate(found):
        with TFRecordWriter(name) as writer:
            for record in range(10):
                writer.write(b"%d of %d" % (record, file))
    return found


def _read(dataset: Dataset, policy: ShardingPolicy, service: Service, **fields) -> list:
    return read(dataset.apply(distribute(policy, service.target, **fields)))


def _by_shard(found: list, shard_of: Callable) -> list[list]:
    """Return the elements of each of five shards, in the order in which they were read."""
    return [[x for x in found if shard_of(x) == shard] for shard in range(5)]


def _records(files: list[int], order: str = "files") -> list[bytes]:
    pairs = [(file, record) for file in files for record in range(10)]
    if order == "records":
        pairs.sort(key=lambda pair: pair[1])
    return [b"%d of %d" % (record, file) for file, record in pairs]


def _file(record: bytes) -> int:
    return int(record.rpartition(b" ")[2])


def _listed(names: list[str], *, shuffle: bool = False) -> Dataset:
    return Dataset.list_files(names, shuffle=shuffle)


# ── elements ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("policy", [DATA, FILE_OR_DATA])
def test_each_worker_keeps_every_fifth_element(five, policy):
    shards = _by_shard(_read(Dataset.range(20), policy, five), lambda x: x % 5)
    assert shards == [list(range(shard, 20, 5)) for shard in range(5)]


@pytest.mark.parametrize("policy", [DATA, FILE_OR_DATA])
def test_batches_are_divided_as_elements(five, policy):
    dataset = Dataset.range(20).batch(3).prefetch(2)
    found = [x.tolist() for x in _read(dataset, policy, five)]
    shards = _by_shard(found, lambda x: x[0] // 3 % 5)
    assert shards[0] == [[0, 1, 2], [15, 16, 17]]
    assert shards[1] == [[3, 4, 5], [18, 19]]
    assert shards[2:] == [[[6, 7, 8]], [[9, 10, 11]], [[12, 13, 14]]]


def test_one_worker_yields_all_in_order(serve):
    service = serve(1, worker_addresses=["localhost:%port%"])
    assert _read(Dataset.range(20), FILE_OR_DATA, service) == list(range(20))


@pytest.mark.parametrize("policy", [DATA, FILE_OR_DATA])
def test_few_elements_leave_shards_empty(five, policy):
    assert sorted(_read(Dataset.range(3), policy, five)) == [0, 1, 2]
    assert _read(Dataset.range(0), policy, five) == []


def test_all_workers_shuffle_alike(five):
    """Otherwise their shards would overlap."""
    dataset = Dataset.range(100).shuffle(100).map(lambda x: x)
    first, second = (_read(dataset, DATA, five) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(100))
    assert _by_shard(first, lambda x: x % 5) != _by_shard(second, lambda x: x % 5)


def test_records_are_divided_by_data(five, names):
    dataset = _listed(names).flat_map(Dataset.tfrecords)
    found = _read(dataset, DATA, five)
    assert Counter(found) == Counter(_records(list(range(10))))
    third = [x for x in found if int(x.split()[0]) in (3, 8)]
    assert third == [b"%d of %d" % (record, file) for file in range(10) for record in (3, 8)]


def test_repeated_epochs_and_named_jobs_read_everything(five):
    dataset = Dataset.range(20).apply(distribute(DATA, five.target, job_name="job"))
    assert Counter(read(dataset.repeat(3))) == dict.fromkeys(range(20), 3)
    inner = Dataset.range(20).repeat(3).apply(distribute(DATA, five.target))
    assert Counter(read(inner)) == dict.fromkeys(range(20), 3)


def test_clients_of_a_job_share_the_shards(five):
    made = [distribute(DATA, five.target, job_name="shared") for _ in range(2)]
    with (
        Dataset.range(200).apply(made[0]).iterator() as first,
        Dataset.range(200).apply(made[1]).iterator() as second,
    ):
        found = read(first, 10) + read(second)
        found += read(first)
    assert sorted(found) == list(range(200))


def test_a_registered_dataset_is_sharded(five):
    dataset_id = register_dataset(five.target, Dataset.range(20))
    found = read(from_dataset_id(DATA, five.target, dataset_id))
    assert sorted(found) == list(range(20))


# ── files ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("policy", [FILE, FILE_OR_DATA])
@pytest.mark.parametrize("repeats", [1, 2])
def test_each_worker_reads_every_fifth_file(five, names, policy, repeats):
    dataset = _listed(names).flat_map(Dataset.tfrecords).repeat(repeats)
    shards = _by_shard(_read(dataset, policy, five), lambda x: _file(x) % 5)
    assert shards == [_records([shard, shard + 5]) * repeats for shard in range(5)]


@pytest.mark.parametrize("policy", [FILE, FILE_OR_DATA])
def test_shuffled_files_are_divided_before_they_are_shuffled(five, names, policy):
    assert sorted(_read(Dataset.list_files(names), policy, five)) == names
    with_records = _listed(names, shuffle=True).flat_map(Dataset.tfrecords)
    shards = _by_shard(_read(with_records, policy, five), lambda x: _file(x) % 5)
    for shard, found in enumerate(shards):
        one, two = _records([shard]), _records([shard + 5])
        assert found in (one + two, two + one)


def test_files_that_appear_later_change_nothing(five, names, tmp_path):
    dataset = _listed([str(tmp_path / "*.tfrecord")]).apply(distribute(FILE, five.target))
    with dataset.iterator() as iterator:
        found = read(iterator, 1)
        (tmp_path / "00.tfrecord").touch()
        five.workers[0].stop()
        five.add_worker()
        found += read(iterator)
    assert set(found) == set(names)


def test_long_lists_of_files_arrive_in_pages(serve, tmp_path):
    """More names than an answer of the dispatcher holds."""
    for number in range(2500):
        (tmp_path / f"{number:04}").touch()
    service = serve(2, worker_addresses=["localhost"] * 2)
    found = _read(_listed([str(tmp_path / "*")]), FILE, service)
    shards = [[x for x in found if int(x[-4:]) % 2 == shard] for shard in range(2)]
    expected = [[f"{tmp_path}/{k:04}" for k in range(shard, 2500, 2)] for shard in range(2)]
    assert shards == expected


@pytest.mark.parametrize("how", ["interleave", "tfrecords"])
@pytest.mark.parametrize("policy", [FILE, FILE_OR_DATA])
def test_names_in_an_array_are_files(five, names, policy, how):
    dataset = Dataset.from_tensor_slices(names)
    if how == "tfrecords":
        shards = _by_shard(_read(Dataset.tfrecords(names), policy, five), lambda x: _file(x) % 5)
        assert shards == [_records([shard, shard + 5]) for shard in range(5)]
    dataset = dataset.interleave(Dataset.tfrecords, cycle_length=10)
    shards = _by_shard(_read(dataset, policy, five), lambda x: _file(x) % 5)
    assert shards == [_records([shard, shard + 5], "records") for shard in range(5)]


def _interleaved(names: list[str]) -> Dataset:
    return _listed(names).interleave(
        Dataset.tfrecords, cycle_length=10, num_parallel_calls=stoker.AUTOTUNE
    )


def test_interleaved_files_alternate_within_a_shard(five, names):
    dataset = _interleaved(names).prefetch(stoker.AUTOTUNE)
    shards = _by_shard(_read(dataset, FILE_OR_DATA, five), lambda x: _file(x) % 5)
    assert shards[3] == _records([3, 8], "records")


def test_both_inputs_of_a_zip_are_divided_alike(five, names):
    dataset = Dataset.zip(_interleaved(names), _interleaved(names)).prefetch(2)
    shards = _by_shard(_read(dataset, FILE_OR_DATA, five), lambda x: _file(x[0]) % 5)
    assert shards[3] == [(x, x) for x in _records([3, 8], "records")]


def test_both_inputs_of_concatenate_are_divided(five, names):
    dataset = _interleaved(names).concatenate(_interleaved(names))
    shards = _by_shard(_read(dataset, FILE_OR_DATA, five), lambda x: _file(x) % 5)
    assert shards[3] == _records([3, 8], "records") * 2


def test_a_file_cache_of_a_shard_is_not_another_shard(five, names, tmp_path):
    dataset = _listed(names).flat_map(Dataset.tfrecords).cache(str(tmp_path / "cache")).repeat(2)
    found = Counter(_read(dataset, FILE, five))
    assert found == dict.fromkeys(_records(list(range(10))), 2)


@pytest.mark.parametrize("policy", [FILE, FILE_OR_DATA, HINT])
def test_fewer_files_than_workers_are_an_error(five, names, policy):
    dataset = _listed(names[:4])
    if policy is HINT:
        dataset = dataset.shard(stoker.SHARD_HINT, stoker.SHARD_HINT)
    text = "only has 4 file.* not enough for the required 5 shards/workers."
    with pytest.raises(InvalidArgumentError, match=text):
        _read(dataset.flat_map(Dataset.tfrecords), policy, five)


def test_fewer_names_than_workers_are_an_error(five, names):
    with pytest.raises(InvalidArgumentError, match="only has 4 file"):
        _read(Dataset.tfrecords(names[:4]), FILE, five)


def test_few_files_are_divided_by_data(five, names):
    dataset = _listed(names[:4]).flat_map(Dataset.tfrecords)
    assert Counter(_read(dataset, DATA, five)) == Counter(_records([0, 1, 2, 3]))


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(20),
        Dataset.from_generator(lambda: iter([1])),
        Dataset.zip(Dataset.list_files("*"), Dataset.range(5)),
    ],
    ids=["range", "generator", "zip"],
)
def test_a_source_without_files_is_named(five, dataset):
    with pytest.raises(NotFoundError, match=r"unshardable source dataset.*`(range|from_gen)"):
        _read(dataset, FILE, five)


def test_a_dataset_that_reads_from_a_service_is_not_divided(serve, five):
    inner = Dataset.range(9).apply(distribute(ShardingPolicy.OFF, serve(1).target))
    with pytest.raises(UnimplementedError, match=r"`distribute`.* part of its part"):
        _read(inner, DATA, five)


# ── the hint ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("index", [stoker.SHARD_HINT, 0, 5])
def test_a_hint_becomes_the_shard_of_the_worker(five, index):
    dataset = Dataset.range(20).shard(stoker.SHARD_HINT, index).map(lambda x: -x)
    shards = _by_shard(_read(dataset, HINT, five), lambda x: -x % 5)
    assert shards == [[-x for x in range(shard, 20, 5)] for shard in range(5)]


def test_a_hint_divides_files_where_the_user_put_it(five, names):
    dataset = _listed(names).shard(stoker.SHARD_HINT, 0).flat_map(Dataset.tfrecords)
    shards = _by_shard(_read(dataset, HINT, five), lambda x: _file(x) % 5)
    assert shards == [_records([shard, shard + 5]) for shard in range(5)]


def test_a_hint_divides_records_after_they_are_read(five, names):
    dataset = _listed(names).flat_map(Dataset.tfrecords).shard(stoker.SHARD_HINT, 0)
    found = _read(dataset, HINT, five)
    third = [x for x in found if int(x.split()[0]) in (3, 8)]
    assert third == [b"%d of %d" % (record, file) for file in range(10) for record in (3, 8)]
    assert Counter(found) == Counter(_records(list(range(10))))


def test_without_a_hint_every_worker_reads_what_the_user_wrote(five):
    found = Counter(_read(Dataset.range(20).shard(1, 0), HINT, five))
    assert found == dict.fromkeys(range(20), 5)


@pytest.mark.parametrize("policy", [ShardingPolicy.OFF, FILE_OR_DATA])
def test_a_hint_under_another_policy_is_refused(five, policy):
    dataset = Dataset.range(20).shard(stoker.SHARD_HINT, stoker.SHARD_HINT)
    with pytest.raises(FailedPreconditionError, match=r"service\.ShardingPolicy\.HINT"):
        _read(dataset, policy, five)


def test_a_stuck_shard_does_not_stop_the_others(serve, tmp_path):
    gate = tmp_path / "open"

    def block_the_first(number: int) -> int:
        while number == 0 and not gate.exists():
            time.sleep(0.01)
        return number

    # With small buffers the pipelines, which share one interpreter, wait most of the time.
    service = serve(6, worker={"buffer_bytes": 100}, worker_addresses=["localhost"] * 6)
    dataset = Dataset.range(6).shard(stoker.SHARD_HINT, 0).map(block_the_first).repeat()
    dataset = dataset.apply(distribute(HINT, service.target, max_outstanding_requests=1))
    try:
        with dataset.iterator() as iterator:
            assert set(read(iterator, 100)) <= {1, 2, 3, 4, 5}
    finally:
        gate.touch()


# ── the list of workers ──────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("entry", ["localhost", "LOCALHOST:%port%", "127.0.0.1:%grpc%", "[::1]"])
def test_a_host_stands_for_any_of_its_ports(serve, entry):
    service = serve(2, worker_addresses=[entry] * 2)
    assert sorted(_read(Dataset.range(5), DATA, service)) == list(range(5))


@pytest.mark.parametrize("entry", ["localhost:worker", "other", "localhost:1"])
def test_a_worker_that_is_not_configured_is_refused(serve, entry):
    service = serve(0, worker_addresses=[entry])
    with pytest.raises(RuntimeError, match="The worker's address is not configured"):
        service.add_worker()


def test_more_workers_than_places_are_refused(serve):
    service = serve(1, worker_addresses=["localhost"])
    text = "other workers are already running at the configured host"
    with pytest.raises(FailedPreconditionError, match=text):
        service.add_worker()


def test_other_modes_ignore_the_order_of_workers(five):
    found = Counter(_read(Dataset.range(20), ShardingPolicy.OFF, five))
    assert found == dict.fromkeys(range(20), 5)
    found = Counter(_read(Dataset.range(20), ShardingPolicy.DYNAMIC, five))
    assert found == dict.fromkeys(range(20), 1)


def test_other_modes_read_files_as_without_a_list(serve, names):
    service = serve(1, worker_addresses=["localhost"])
    dataset = _listed(names).flat_map(Dataset.tfrecords)
    assert _read(dataset, ShardingPolicy.OFF, service) == _records(list(range(10)))


@pytest.mark.parametrize("policy", [*STATIC, ShardingPolicy.DYNAMIC, ShardingPolicy.OFF])
def test_every_policy_reads_files(serve, names, policy):
    service = serve(2, worker_addresses=["localhost"] * 2)
    found = Counter(_read(_listed(names).flat_map(Dataset.tfrecords), policy, service))
    times = 2 if policy in (ShardingPolicy.OFF, HINT) else 1
    assert found == dict.fromkeys(_records(list(range(10))), times)


@pytest.mark.parametrize("policy", STATIC)
@pytest.mark.parametrize("addresses", [None, []])
def test_without_a_list_static_sharding_is_refused(serve, policy, addresses):
    with pytest.raises(NotFoundError, match=r"Worker .* is not in the workers list."):
        _read(Dataset.range(20), policy, serve(1, worker_addresses=addresses))


@pytest.mark.parametrize("threads", [True, False])
def test_a_local_cluster_numbers_its_workers(threads):
    with stoker.LocalCluster(2, threads=threads) as cluster:
        dataset = Dataset.range(20).distribute(cluster, processing_mode=DATA)
        assert sorted(read(dataset)) == list(range(20))
        cluster.add_worker()
        assert sorted(read(dataset)) == list(range(20))


def test_a_killed_worker_of_a_cluster_is_replaced():
    with stoker.LocalCluster(2) as cluster:
        dataset = Dataset.range(2000).distribute(cluster, processing_mode=DATA)
        with dataset.apply(lambda x: x).iterator() as iterator:
            found = read(iterator, 1)
            cluster.kill_worker(0)
            cluster.add_worker()
            found += read(iterator)
        assert set(found) == set(range(2000))


# ── workers that come and go ─────────────────────────────────────────────────────────────────────
def test_clients_wait_for_workers_of_the_list(serve, caplog):
    caplog.set_level(logging.WARNING, "stoker.client")
    clock = ManualClock()
    service = serve(1, worker_addresses=["localhost", "127.0.0.1:%port%"], clock=clock)
    with Dataset.range(20).apply(distribute(DATA, service.dispatcher)).iterator() as iterator:
        found = read(iterator, 10)
        assert found == list(range(0, 20, 2))
        text = "shard 1 of 2 at 127.0.0.1:%port%, which has not registered"

        def start_late() -> None:
            if clock.eventually(lambda: text in caplog.text):
                service.add_worker()

        starter = threading.Thread(target=start_late)
        starter.start()
        found += read(iterator)
        starter.join()
    assert found == [*range(0, 20, 2), *range(1, 20, 2)]


def test_a_shard_starts_again_after_its_worker(serve):
    """At another port; the other shard is not read again."""
    service = serve(2, worker_addresses=["localhost"] * 2)
    dataset = Dataset.range(10_000_000).apply(
        distribute(DATA, service.target, max_outstanding_requests=2)
    )
    with dataset.iterator() as iterator:
        assert eventually(lambda: tasks_of(iterator) == 2)
        found = read(iterator, 50)
        service.workers.pop(0).stop()
        service.add_worker()
        assert eventually(lambda: tasks_of(iterator) == 3)
        found += read(iterator, 200)
    evens, odds = ([x for x in found if x % 2 == k] for k in range(2))
    again = len(evens) - 1 - evens[::-1].index(0)
    assert evens[again:] == list(range(0, 2 * (len(evens) - again), 2))
    assert odds == list(range(1, 2 * len(odds), 2))


def test_a_finished_shard_is_not_read_again(serve):
    service = serve(1, worker_addresses=["localhost"] * 2)
    with Dataset.range(20).apply(distribute(DATA, service.target)).iterator() as iterator:
        found = read(iterator, 10)
        [iteration] = service.state.iterations.values()
        assert eventually(lambda: any(task.read for task in iteration.tasks.values()))
        service.workers.pop().stop()
        service.add_worker()
        service.add_worker()
        found += read(iterator)
    assert sorted(found) == list(range(20))


def test_the_next_epoch_waits_for_a_lost_worker(serve):
    service = serve(2, worker_addresses=["localhost"] * 2)
    dataset = Dataset.range(20).apply(distribute(DATA, service.target))
    assert sorted(read(dataset)) == list(range(20))
    service.workers.pop(0).stop()
    with dataset.iterator() as iterator:
        assert read(iterator, 10) == list(range(1, 20, 2))
        service.add_worker()
        assert read(iterator) == list(range(0, 20, 2))


# ── LOCAL ────────────────────────────────────────────────────────────────────────────────────────
def test_local_readers_need_a_local_worker(serve):
    service = serve(0, worker_addresses=["localhost"])
    text = "Static sharding policy <FILE_OR_DATA> requires local tf.data workers"
    with pytest.raises(InvalidArgumentError, match=text):
        _read(Dataset.range(20), FILE_OR_DATA, service, target_workers="LOCAL")


def test_local_readers_read_the_shard_of_their_process(serve):
    """The other shards are not waited for, whether their workers are there or not."""
    service = serve(0, worker_addresses=["localhost"] * 5)
    with WorkerServer(dispatcher_address=service.target):
        service.add_worker()
        found = _read(Dataset.range(20), DATA, service, target_workers="LOCAL")
    assert sorted(found) == [0, 1, 5, 6, 10, 11, 15, 16]


# ── restarts of the dispatcher ───────────────────────────────────────────────────────────────────
@pytest.fixture
def journal(tmp_path):
    """Fields of `DispatcherConfig` with which a dispatcher keeps a journal."""
    return {"work_dir": str(tmp_path / "journal"), "fault_tolerant_mode": True}


def _restart(service: Service, **fields) -> None:
    port = service.address[1]
    service.dispatcher.stop()
    service.dispatcher = service.enter_context(DispatchServer(port=port, **fields))


@pytest.mark.parametrize("policy", [FILE, DATA])
def test_shards_go_on_over_a_restart(serve, journal, names, policy):
    listed = {"worker_addresses": ["localhost"] * 2, **journal}
    service = serve(2, **listed)
    dataset = _listed(names).flat_map(Dataset.tfrecords)
    with dataset.apply(
        distribute(policy, service.target, max_outstanding_requests=1)
    ).iterator() as iterator:
        found = read(iterator, 10)
        _restart(service, **listed)
        found += read(iterator)
    assert Counter(found) == Counter(_records(list(range(10))))


def test_a_dispatcher_restarts_with_another_list(serve, journal):
    """Workers get the places of the new list, and a new epoch its shards."""
    service = serve(2, worker_addresses=["localhost"] * 2, **journal)
    dataset = Dataset.range(20).apply(distribute(DATA, service.target))
    assert sorted(read(dataset)) == list(range(20))
    _restart(service, worker_addresses=["localhost"] * 3, **journal)
    service.add_worker()
    assert sorted(read(dataset)) == list(range(20))


def test_workers_get_places_of_a_list_that_is_new(serve, journal):
    service = serve(2, **journal)
    _restart(service, worker_addresses=["localhost"] * 2, **journal)
    assert sorted(_read(Dataset.range(20), DATA, service)) == list(range(20))


def test_an_epoch_fails_if_the_list_becomes_shorter(serve, journal):
    service = serve(1, worker_addresses=["localhost"] * 2, **journal)
    with Dataset.range(20).apply(distribute(DATA, service.target)).iterator() as iterator:
        assert len(read(iterator, 10)) == 10
        _restart(service, worker_addresses=["localhost"], **journal)
        with pytest.raises(FailedPreconditionError, match="restarted with 1 `worker_addresses`"):
            read(iterator)


def test_auto_does_not_wait_for_colocated_workers_of_others(serve):
    service = serve(0, worker_addresses=["localhost"] * 3)
    service.add_worker(worker_tags=["COLOCATED"])
    service.add_worker()
    config = WorkerConfig(dispatcher_address=service.target, worker_tags=["COLOCATED"])
    remote = WorkerProcess(config)
    try:
        remote.wait_serving()
        dataset = Dataset.range(30).apply(distribute(FILE_OR_DATA, service.target))
        assert sorted(read(dataset)) == [x for x in range(30) if x % 3 != 2]
        local = distribute(DATA, service.target, target_workers="LOCAL")
        assert sorted(read(Dataset.range(30).apply(local))) == [x for x in range(30) if x % 3 != 2]
    finally:
        remote.stop()


# ── cardinality ──────────────────────────────────────────────────────────────────────────────────
EMPTY, ENDLESS = Dataset.range(0), Dataset.range(10).repeat()
INFINITE, UNKNOWN = stoker.INFINITE_CARDINALITY, stoker.UNKNOWN_CARDINALITY


@pytest.mark.parametrize(
    ("policy", "dataset", "expected"),
    [
        (FILE, EMPTY, 0),
        (DATA, EMPTY, 0),
        (FILE_OR_DATA, EMPTY, 0),
        (HINT, EMPTY, UNKNOWN),
        (FILE, ENDLESS, UNKNOWN),
        (DATA, ENDLESS, INFINITE),
        (FILE_OR_DATA, ENDLESS, UNKNOWN),
        (HINT, ENDLESS, UNKNOWN),
        *((policy, Dataset.range(10), UNKNOWN) for policy in STATIC),
    ],
)
def test_the_cardinality_depends_on_the_policy(five, policy, dataset, expected):
    assert dataset.apply(distribute(policy, five.target)).cardinality() == expected
    dataset_id = register_dataset(five.target, dataset)
    assert from_dataset_id(policy, five.target, dataset_id).cardinality() == expected


def test_the_length_under_data_is_that_of_the_dataset(five):
    dataset = Dataset.range(10).batch(3)
    distributed = dataset.apply(distribute(DATA, five.target))
    assert len(distributed) == 4 == len(read(distributed))
    for without_length in (
        distribute(DATA, five.target, job_name="job"),
        distribute(DATA, five.target, target_workers="LOCAL"),
        distribute(FILE_OR_DATA, five.target),
    ):
        with pytest.raises(TypeError):
            len(dataset.apply(without_length))


# ── clients that do not agree ────────────────────────────────────────────────────────────────────
def test_clients_of_a_job_agree_on_the_policy(five):
    with Dataset.range(9).apply(distribute(DATA, five.target, job_name="a")).iterator() as first:
        read(first, 1)
        with pytest.raises(InvalidArgumentError, match="Existing processing mode: <DATA>; got <H"):
            _read(Dataset.range(9), HINT, five, job_name="a")


def test_a_named_job_is_collected_and_starts_afresh(serve):
    service = serve(
        2, worker_addresses=["localhost"] * 2, job_gc_check_interval_ms=50, job_gc_timeout_ms=50
    )
    dataset = Dataset.range(20).apply(distribute(DATA, service.target, job_name="job"))
    with dataset.iterator() as iterator:
        read(iterator, 3)
    assert eventually(lambda: not service.state.jobs)
    again = Dataset.range(20).apply(distribute(DATA, service.target, job_name="job"))
    assert sorted(read(again)) == list(range(20))
