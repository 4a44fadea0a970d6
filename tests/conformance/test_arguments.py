"""BEHAVIOUR.md, Argument checks and Names."""

import inspect

import pytest

import stoker
import stoker.service
from stoker import errors
from stoker.service import (
    CrossTrainerCache,
    DispatchServer,
    ShardingPolicy,
    WorkerServer,
    distribute,
    from_dataset_id,
    register_dataset,
)

ADDRESS = "grpc://localhost:5050"
DATASET = stoker.Dataset.range(3)

UNSPLITTABLE = stoker.Dataset.from_generator(lambda: iter([1]))


def _both_calls(**arguments):
    """Return a call of `distribute` and one of `from_dataset_id` with the same arguments."""
    settings = {"processing_mode": "parallel_epochs", "service": ADDRESS, **arguments}
    from_id = {"dataset_id": "d", "element_spec": stoker.UnknownSpec(), **settings}
    return [lambda: distribute(**settings), lambda: from_dataset_id(**from_id)]


@pytest.mark.parametrize(
    ("arguments", "builtin", "message"),
    [
        ({"job_name": ""}, ValueError, "`job_name` must not be empty"),
        ({"job_name": 5}, ValueError, "`job_name` must be a string"),
        ({"service": 5}, ValueError, "`service` must be a string"),
        ({"service": None}, ValueError, "`service` must be a string"),
        ({"service": ""}, ValueError, "`service` must not be empty"),
        ({"service": "grpc://a://b:1"}, ValueError, "Malformed"),
        ({"service": ("grpc", 5)}, ValueError, "service"),
        ({"service": ":5050"}, ValueError, "`service` ':5050' has no host"),
        ({"service": "localhost:x"}, ValueError, "the port 'x', which is not a number"),
        ({"service": "localhost:0"}, ValueError, r"the port 0, which is not in \[1, 65535\]"),
        ({"service": "carrier://a:1"}, LookupError, "'carrier'.*'grpc'"),
        ({"service": ("carrier", "a:1")}, LookupError, "'carrier'.*'grpc'"),
        (
            {"processing_mode": "sometimes"},
            ValueError,
            "ShardingPolicy.*parallel_epochs.*distributed",
        ),
        ({"processing_mode": 1.5}, ValueError, "ShardingPolicy"),
        ({"consumer_index": 0}, ValueError, "consumer_index.*num_consumers"),
        ({"num_consumers": 2, "job_name": "j"}, ValueError, "consumer_index.*num_consumers"),
        ({"num_consumers": 2, "consumer_index": 0}, ValueError, "job_name"),
        ({"num_consumers": 2, "consumer_index": 2, "job_name": "j"}, ValueError, "consumer_index"),
        ({"num_consumers": 2, "consumer_index": -1, "job_name": "j"}, ValueError, "consumer_index"),
        ({"num_consumers": 0, "consumer_index": 0, "job_name": "j"}, ValueError, "num_consumers"),
        ({"max_outstanding_requests": 0}, ValueError, "`max_outstanding_requests` must be .*0"),
        ({"max_outstanding_requests": -3}, ValueError, "`max_outstanding_requests`"),
        ({"max_outstanding_requests": "2"}, ValueError, "`max_outstanding_requests`"),
        ({"max_outstanding_requests": True}, ValueError, "`max_outstanding_requests`"),
        ({"buffer_bytes": 0}, ValueError, "`buffer_bytes` must be .*0"),
        ({"buffer_bytes": 1.5}, ValueError, "`buffer_bytes`"),
        ({"target_workers": "NEAR"}, ValueError, "`target_workers`.*NEAR"),
        ({"target_workers": None}, ValueError, "`target_workers`"),
        ({"data_transfer_protocol": "pigeon"}, LookupError, "'pigeon'.*'tcp'"),
    ],
)
def test_invalid_argument_is_refused_before_connecting(arguments, builtin, message):
    for call in _both_calls(**arguments):
        with pytest.raises(builtin, match=message) as caught:
            call()
        assert isinstance(caught.value, errors.StokerError)


@pytest.mark.parametrize("compression", ["ZIP", "", 5, "auto", "lz4", ["LZ4"]])
def test_unknown_compression_is_refused(compression):
    for call in (
        lambda: distribute("parallel_epochs", ADDRESS, compression=compression),
        lambda: register_dataset(ADDRESS, DATASET, compression=compression),
    ):
        with pytest.raises(ValueError, match=r"Invalid `compression` argument.*'LZ4'.* or None"):
            call()


@pytest.mark.parametrize("compression", ["AUTO", None, "LZ4", "SNAPPY", "ZSTD"])
def test_known_compression_is_accepted(compression):
    distribute("parallel_epochs", ADDRESS, compression=compression)


@pytest.mark.parametrize("trainer", ["", None])
def test_cross_trainer_cache_needs_a_trainer_id(trainer):
    with pytest.raises(ValueError, match="requires a non-empty trainer ID"):
        CrossTrainerCache(trainer)


def test_ids_are_text():
    with pytest.raises(TypeError, match="`trainer_id` must be a str, got 3"):
        CrossTrainerCache(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`dataset_id` must be a str, got 3"):
        register_dataset(ADDRESS, DATASET, dataset_id=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`dataset_id` must be a str, got None"):
        from_dataset_id("parallel_epochs", ADDRESS, None)  # type: ignore[arg-type]


def test_unknown_dataset_id_is_not_found(serve):
    target = serve().target
    with pytest.raises(LookupError, match="Dataset id X not found"):
        from_dataset_id("parallel_epochs", target, "X")
    with pytest.raises(errors.NotFoundError, match="Dataset id X not found"):
        next(
            iter(from_dataset_id("parallel_epochs", target, "X", element_spec=stoker.UnknownSpec()))
        )


def test_explicit_id_with_another_element_spec_is_refused(serve):
    target = serve().target
    assert register_dataset(target, DATASET, dataset_id="mine") == "mine"
    with pytest.raises(
        errors.InvalidArgumentError,
        match="Datasets with the same ID should have the same structure",
    ):
        register_dataset(target, DATASET.batch(2), dataset_id="mine")


def test_unsplittable_source_is_refused_by_distribute():
    with pytest.raises(NotImplementedError, match=r"from_generator|generator") as caught:
        UNSPLITTABLE.distribute(ADDRESS, processing_mode="distributed_epoch")
    assert isinstance(caught.value, errors.UnimplementedError)
    assert '"parallel_epochs"' in str(caught.value)
    assert "test_arguments.py:" in str(caught.value)


@pytest.mark.parametrize(
    "service", ["localhost:5050", "grpc://localhost:5050", ("grpc", "localhost:5050"), "[::1]:5050"]
)
def test_every_form_of_service_address_is_accepted(service):
    assert DATASET.distribute(service).element_spec == DATASET.element_spec


def test_dispatcher_object_or_tuple_is_accepted_as_service(serve):
    service = serve()
    assert list(DATASET.distribute(service.dispatcher)) == [0, 1, 2]
    protocol, address = service.target.split("://")
    assert list(DATASET.distribute((protocol, address))) == [0, 1, 2]


@pytest.mark.parametrize("workers", ["auto", "Any", "AUTO"])
def test_target_workers_is_case_insensitive(serve, workers):
    assert list(DATASET.distribute(serve().target, target_workers=workers)) == [0, 1, 2]


def test_arguments_have_tensorflows_names_and_order():
    assert list(inspect.signature(distribute).parameters)[:10] == [
        "processing_mode", "service", "job_name", "consumer_index", "num_consumers",
        "max_outstanding_requests", "data_transfer_protocol", "compression",
        "cross_trainer_cache", "target_workers",
    ]  # fmt: skip
    assert list(inspect.signature(register_dataset).parameters)[:4] == [
        "service", "dataset", "compression", "dataset_id",
    ]  # fmt: skip
    assert list(inspect.signature(from_dataset_id).parameters)[:11] == [
        "processing_mode", "service", "dataset_id", "element_spec", "job_name", "consumer_index",
        "num_consumers", "max_outstanding_requests", "data_transfer_protocol",
        "cross_trainer_cache", "target_workers",
    ]  # fmt: skip


def test_service_exports_tensorflows_names():
    for name in (
        "DispatchServer", "DispatcherConfig", "WorkerServer", "WorkerConfig", "distribute",
        "register_dataset", "from_dataset_id", "ShardingPolicy", "CrossTrainerCache",
    ):  # fmt: skip
        assert name in stoker.service.__all__
        assert hasattr(stoker.service, name)


def test_sharding_policies_match_tensorflows():
    names = ["OFF", "DYNAMIC", "FILE", "DATA", "FILE_OR_DATA", "HINT", "DETERMINISTIC"]
    assert [policy.name for policy in ShardingPolicy] == names
    assert [int(policy) for policy in ShardingPolicy] == list(range(7))


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("InvalidArgumentError", ValueError),
        ("NotFoundError", LookupError),
        ("AlreadyExistsError", Exception),
        ("FailedPreconditionError", Exception),
        ("UnavailableError", ConnectionError),
        ("UnimplementedError", NotImplementedError),
        ("PermissionDeniedError", PermissionError),
        ("UserFunctionError", Exception),
        ("PoisonedElementError", Exception),
    ],
)
def test_errors_subclass_matching_builtins(name, builtin):
    error = getattr(errors, name)
    assert issubclass(error, builtin)
    assert issubclass(error, errors.StokerError)


def test_fluent_distribute_is_dynamic_by_default(serve):
    target = serve(2).target
    assert sorted(DATASET.distribute(target)) == [0, 1, 2]
    off = DATASET.distribute(target, processing_mode="parallel_epochs")
    assert sorted(off) == [0, 0, 1, 1, 2, 2]


def test_servers_accept_a_config_or_its_fields():
    config = stoker.service.DispatcherConfig(port=0, protocol="grpc")
    with DispatchServer(config) as dispatcher:
        address = dispatcher.target.removeprefix("grpc://")
        with WorkerServer(stoker.service.WorkerConfig(dispatcher_address=address)):
            with WorkerServer(port=0, dispatcher_address=dispatcher.target):
                assert dispatcher.num_workers() == 2
            assert dispatcher.num_workers() == 1
