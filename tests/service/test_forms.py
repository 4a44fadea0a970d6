"""Forms of calls: by position as in TensorFlow, signatures, and the messages users search for."""

import inspect
import pickle
from typing import Any

import pytest

import stoker
from stoker.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    UnimplementedError,
)
from stoker.service import (
    CrossTrainerCache,
    DispatcherConfig,
    DispatchServer,
    ShardingPolicy,
    WorkerConfig,
    WorkerServer,
    distribute,
)
from tests.serving import Service

Dispatcher: Any = DispatcherConfig
Worker: Any = WorkerConfig
FIVE: Any = (5,)
"""Untyped, to be called with arguments of the wrong type."""

ADDRESS = "grpc://localhost:5050"

DISPATCHER_FIELDS = [
    "port", "protocol", "work_dir", "fault_tolerant_mode", "worker_addresses",
    "job_gc_check_interval_ms", "job_gc_timeout_ms", "worker_timeout_ms",
    "worker_max_concurrent_snapshots",
]  # fmt: skip
WORKER_FIELDS = [
    "dispatcher_address", "worker_address", "port", "protocol", "heartbeat_interval_ms",
    "dispatcher_timeout_ms", "data_transfer_protocol", "data_transfer_address",
]  # fmt: skip
"""The fields of TensorFlow 2.21, in its order."""


# ── servers ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("config", "names"), [(DispatcherConfig, DISPATCHER_FIELDS), (WorkerConfig, WORKER_FIELDS)]
)
def test_configs_have_tensorflows_fields_by_position(config, names):
    parameters = inspect.signature(config).parameters.values()
    assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == names


def test_configs_are_made_by_position():
    assert WorkerConfig("localhost:1").dispatcher_address == "localhost:1"
    config = WorkerConfig("localhost:1", "w:2", 3, "grpc", 400, 5000, "tcp", "w:6")
    assert (config.worker_address, config.port, config.data_transfer_address) == ("w:2", 3, "w:6")
    assert Dispatcher(0, None, None, False, None, 5, 6, 7, 8) == Dispatcher(
        job_gc_check_interval_ms=5,
        job_gc_timeout_ms=6,
        worker_timeout_ms=7,
        worker_max_concurrent_snapshots=8,
    )


def test_none_means_the_default_of_every_field_of_tensorflow():
    assert Dispatcher(**dict.fromkeys(DISPATCHER_FIELDS, None)) == DispatcherConfig()
    fields = {**dict.fromkeys(WORKER_FIELDS, None), "dispatcher_address": "localhost:1"}
    assert Worker(**fields) == WorkerConfig("localhost:1")


def test_servers_take_config_and_start_by_position():
    with DispatchServer(DispatcherConfig(), True) as dispatcher:
        worker = WorkerServer(WorkerConfig(dispatcher.target), False)
        assert dispatcher.num_workers() == 0
        worker.stop()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DispatchServer(*FIVE), "`config` must be a DispatcherConfig, got 5"),
        (lambda: WorkerServer(Dispatcher()), "`config` must be a WorkerConfig"),
        (WorkerServer, "dispatcher_address"),
        (lambda: DispatchServer(DispatcherConfig(), port=1), r"not both: \['port'\]"),
        (lambda: DispatchServer(colour=1), "colour"),
        (lambda: Dispatcher(port="5050"), "`port` must be an int"),
    ],
)
def test_wrong_configuration_is_a_type_error(call, message):
    with pytest.raises(InvalidTypeError, match=message) as raised:
        call()
    assert isinstance(raised.value, TypeError)


def test_target_is_known_before_start_if_the_port_is_given():
    with DispatchServer() as first:
        target = first.target
    dispatcher = DispatchServer(port=int(target.rpartition(":")[2]), start=False)
    assert dispatcher.target == target
    with dispatcher:
        assert dispatcher.target == target
    with pytest.raises(FailedPreconditionError, match="give a port"):
        _ = DispatchServer(start=False).target


def test_stopped_servers_cannot_start_as_in_tensorflow():
    with DispatchServer() as dispatcher:
        worker = WorkerServer(WorkerConfig(dispatcher.target))
        worker.stop()
    for server in (worker, dispatcher):
        with pytest.raises(RuntimeError, match="Server cannot be started after it has been stopp"):
            server.start()


# ── distribute ───────────────────────────────────────────────────────────────────────────────────
def test_fluent_form_has_the_arguments_of_distribute():
    fluent = dict(inspect.signature(stoker.Dataset.distribute).parameters)
    function = dict(inspect.signature(distribute).parameters)
    assert list(fluent)[:3] == ["self", "service", "processing_mode"]
    assert list(fluent)[3:] == list(function)[2:]
    for name in list(function)[2:]:
        assert (fluent[name].default, fluent[name].kind) == (
            function[name].default,
            function[name].kind,
        )
        assert fluent[name].annotation is not inspect.Parameter.empty


@pytest.mark.parametrize("mode", ["parallel_epochs", ShardingPolicy.OFF])
def test_fluent_form_takes_the_mode_by_position_or_name(mode):
    with Service(2) as service:
        dataset = stoker.Dataset.range(3)
        for distributed in (
            dataset.distribute(service.target, mode),
            dataset.distribute(service.target, processing_mode=mode),
            dataset.apply(distribute(mode, service.target)),
        ):
            assert sorted(distributed) == [0, 0, 1, 1, 2, 2]


def test_generator_is_refused_with_what_parallel_epochs_does():
    dataset = stoker.Dataset.from_generator(lambda: iter([1]))
    with pytest.raises(UnimplementedError, match="with N workers, each element N times"):
        dataset.distribute(ADDRESS, processing_mode="distributed_epoch")


# ── length ───────────────────────────────────────────────────────────────────────────────────────
R = stoker.Dataset.range
COUNTED = [
    (R(10), 10),
    (stoker.Dataset.from_tensor_slices([1, 2, 3]), 3),
    (stoker.Dataset.from_tensors(1), 1),
    (R(10).map(abs).shuffle(5).prefetch(2).enumerate(), 10),
    (R(4).repeat(5), 20),
    (R(4).concatenate(R(3)).repeat(2), 14),
    (stoker.Dataset.zip(R(4), R(6).map(abs)), 4),
    (stoker.Dataset.zip(R(4), R(9).batch(2)), 4),
]
UNCOUNTED = [
    R(10).batch(4),
    R(10).take(5),
    R(10).skip(5),
    R(10).filter(bool),
    R(10).flat_map(R),
    stoker.Dataset.text_lines(["a"]),
]


@pytest.mark.parametrize(("dataset", "length"), COUNTED)
def test_length_of_split_elements_is_known(dataset, length):
    distributed = dataset.distribute(ADDRESS, processing_mode="distributed_epoch")
    assert len(distributed) == len(pickle.loads(pickle.dumps(distributed))) == length
    assert distributed.cardinality() == stoker.UNKNOWN_CARDINALITY


@pytest.mark.parametrize(("dataset", "length"), COUNTED)
def test_length_is_the_number_of_elements_of_an_epoch(dataset, length):
    with Service(2) as service:
        dynamic = dataset.distribute(service.target, processing_mode="distributed_epoch")
        assert sum(1 for _ in dynamic) == length


@pytest.mark.parametrize("dataset", UNCOUNTED)
def test_length_that_depends_on_splits_is_unknown(dataset):
    with pytest.raises(TypeError, match="unknown"):
        len(dataset.distribute(ADDRESS, processing_mode="distributed_epoch"))


def test_length_is_unknown_if_others_read_or_all_workers_yield_all():
    for mode, job_name in (("distributed_epoch", "shared"), ("parallel_epochs", None)):
        with pytest.raises(TypeError, match="unknown"):
            len(R(10).distribute(ADDRESS, mode, job_name))


def test_later_methods_count_from_the_length():
    distributed = R(10).distribute(ADDRESS)
    assert len(distributed.map(abs).batch(4)) == 3
    assert len(distributed.take(7).repeat(2)) == 14
    with pytest.raises(TypeError, match="infinite"):
        len(distributed.repeat())


# ── messages ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"job_name": ""}, InvalidArgumentError, "`job_name` must not be empty"),
        (
            {"job_name": 5},
            InvalidArgumentError,
            "`job_name` must be a string, but `job_name` was of type <class 'int'>. job_name=5",
        ),
        ({"service": ""}, InvalidArgumentError, "`service` must not be empty"),
        (
            {"service": 1},
            InvalidArgumentError,
            "`service` must be a string, but `service` was of type <class 'int'>. service=1.",
        ),
        (
            {"service": "a://b://c"},
            InvalidArgumentError,
            "Malformed `service` string has multiple '://': a://b://c.",
        ),
        (
            {"service": "grp://localhost:1"},
            NotFoundError,
            "No credentials factory has been registered for protocol grp",
        ),
        (
            {"processing_mode": "invalid"},
            InvalidArgumentError,
            (
                "tf.data service processing mode should be a "
                '`tf.data.experimental.service.ShardingPolicy`, `"parallel_epochs"`, or '
                "`\"distributed_epoch\"`. Got 'invalid'."
            ),
        ),
        (
            {"consumer_index": 0},
            InvalidArgumentError,
            (
                "Must either set both `consumer_index` and `num_consumers`, or neither. "
                "consumer_index=0, num_consumers=None"
            ),
        ),
        (
            {"consumer_index": 0, "num_consumers": 2},
            InvalidArgumentError,
            "`job_name` must be set when setting `num_consumers`. num_consumers was set to 2.",
        ),
    ],
)
def test_messages_begin_with_tensorflows_words(arguments, error, message):
    with pytest.raises(error) as raised:
        distribute(**{"processing_mode": "parallel_epochs", "service": ADDRESS, **arguments})
    assert str(raised.value).startswith(message)


def test_messages_of_configurations_are_tensorflows():
    with pytest.raises(ValueError, match=r"cache requires a non-empty trainer ID\.$"):
        CrossTrainerCache("")
    with pytest.raises(ValueError, match=r"Worker tags cannot be empty\. Got tags {, COLOCATED}$"):
        WorkerConfig("localhost:1", worker_tags=["", "COLOCATED"])
    with pytest.raises(ValueError, match=r"without configuring a work dir\. Make sure to set `wor"):
        DispatcherConfig(fault_tolerant_mode=True)
    with pytest.raises(ValueError, match=r"Invalid `compression` argument: 'foo'\. Must .*None\.$"):
        distribute("parallel_epochs", ADDRESS, compression="foo")


def test_messages_of_the_dispatcher_are_tensorflows():
    with Service(1) as service:
        with pytest.raises(NotFoundError, match=r"Dataset id X not found\. It must be registered"):
            stoker.service.from_dataset_id("parallel_epochs", service.target, "X")
        R(3).distribute(service.target, job_name="one").iterator(epoch=0).close()
        existing = "Tried to create job with name one, but found an existing job with different"
        distributed = R(30).distribute(service.target, job_name="one")
        other = R(30).distribute(service.target, "parallel_epochs", "one")
        with distributed.iterator() as iterator:
            next(iterator)
            with pytest.raises(InvalidArgumentError, match=existing):
                next(iter(other))
