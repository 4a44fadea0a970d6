import enum

import pytest

from stoker.errors import InvalidArgumentError, NotFoundError
from stoker.service.config import DispatcherConfig, WorkerConfig, parse_service
from stoker.service.rules.processing_modes import ShardingPolicy, parse_processing_mode


def test_dispatcher_defaults_are_as_documented():
    config = DispatcherConfig()
    assert (config.port, config.protocol, config.host) == (0, "grpc", "localhost")
    assert (config.work_dir, config.fault_tolerant_mode) == (None, False)
    assert config.worker_addresses is None
    assert (config.job_gc_check_interval_ms, config.job_gc_timeout_ms) == (600_000, 300_000)
    assert (config.worker_timeout_ms, config.client_timeout_ms) == (10_000, 60_000)
    assert (config.worker_max_concurrent_snapshots, config.gc_dynamic_sharding_jobs) == (3, False)
    assert config.dispatcher_patience_ms == 600_000


def test_worker_defaults_are_as_documented():
    config = WorkerConfig(dispatcher_address="localhost:1")
    assert (config.port, config.protocol, config.worker_address) == (0, "grpc", None)
    assert (config.heartbeat_interval_ms, config.dispatcher_timeout_ms) == (1000, 3_600_000)
    assert (config.data_transfer_protocol, config.data_transfer_address) == (None, None)
    assert (config.worker_tags, config.shutdown_quiet_period_ms) == ([], 0)
    assert config.cross_trainer_cache_size_bytes == 10 << 30
    assert config.shared_memory_bytes == 256 << 20
    assert config.peer_timeout_ms == 10_000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fault_tolerant_mode": True}, "without configuring a work dir"),
        ({"worker_timeout_ms": 0}, "`worker_timeout_ms` must be positive, got 0"),
        ({"client_timeout_ms": -1}, "`client_timeout_ms` must be positive, got -1"),
        ({"dispatcher_patience_ms": 0}, "`dispatcher_patience_ms` must be positive, got 0"),
        ({"job_gc_check_interval_ms": 0}, "`job_gc_check_interval_ms` must be positive"),
        ({"host": "0.0.0.0"}, "insecure=True"),
        ({"host": "192.168.1.5"}, "--insecure"),
    ],
)
def test_invalid_dispatcher_field_is_a_value_error(fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        DispatcherConfig(**fields)
    assert isinstance(caught.value, InvalidArgumentError)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heartbeat_interval_ms": 0}, "`heartbeat_interval_ms` must be positive"),
        ({"dispatcher_timeout_ms": 0}, "`dispatcher_timeout_ms` must be positive"),
        ({"buffer_bytes": 0}, "`buffer_bytes` must be positive"),
        ({"shared_memory_bytes": -1}, "`shared_memory_bytes` must not be negative, got -1"),
        ({"worker_tags": [""]}, "Worker tags cannot be empty"),
        ({"dispatcher_address": ""}, "must not be empty"),
        ({"dispatcher_address": "::1"}, "`dispatcher_address` '::1' is an IPv6 address without br"),
        ({"host": "::"}, "insecure=True"),
        ({"worker_address": "0.0.0.0"}, "`worker_address` must be the host or 'host:port' at whi"),
        ({"worker_address": "[::]:7000"}, "`worker_address` must be the host or 'host:port' at w"),
        ({"worker_address": "a/b"}, "`worker_address` must be the host or 'host:port' at which"),
        ({"data_transfer_address": "grpc://a:1"}, "`data_transfer_address` must be the host or"),
        ({"data_transfer_address": "a:70000"}, "`data_transfer_address` 'a:70000' has the p"),
        ({"peer_timeout_ms": 999}, "`peer_timeout_ms` must be at least 1000, got 999"),
    ],
)
def test_invalid_worker_field_is_a_value_error(fields, message):
    with pytest.raises(ValueError, match=message):
        WorkerConfig(**{"dispatcher_address": "localhost:1", **fields})


@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        ("host", "must be a list of str"),
        ([1], "must be a list of str"),
        (["a", ""], "must be 'host' or 'host:port'"),
        (["a:1", "b", "a:1"], "'a:1' more than once"),
    ],
)
def test_invalid_worker_addresses_are_a_value_error(addresses, message):
    with pytest.raises(ValueError, match=message):
        DispatcherConfig(worker_addresses=addresses)


@pytest.mark.parametrize("addresses", [None, [], ["a", "a"], ["a:%port%", "a:%port%", "a:5"]])
def test_worker_addresses_may_name_a_host_several_times(addresses):
    assert DispatcherConfig(worker_addresses=addresses).worker_addresses == addresses


def test_unknown_protocol_error_names_known_protocols():
    with pytest.raises(NotFoundError, match=r"'carrier'.*'grpc'"):
        DispatcherConfig(protocol="carrier")
    with pytest.raises(NotFoundError, match=r"'pigeon'.*'tcp'"):
        WorkerConfig(dispatcher_address="localhost:1", data_transfer_protocol="pigeon")


def test_insecure_allows_other_hosts():
    assert DispatcherConfig(host="0.0.0.0", insecure=True).host == "0.0.0.0"


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("host:1", ("grpc", "host:1")),
        ("grpc://host:1", ("grpc", "host:1")),
        (("grpc", "host:65535"), ("grpc", "host:65535")),
        ("grpc://[::1]:5", ("grpc", "[::1]:5")),
        ("head", ("grpc", "head:5050")),
        ("grpc://10.0.0.5", ("grpc", "10.0.0.5:5050")),
        (("grpc", "[::1]"), ("grpc", "[::1]:5050")),
    ],
)
def test_service_is_parsed_into_protocol_and_address(service, expected):
    assert parse_service(service) == expected


@pytest.mark.parametrize("service", ["http://head:5050", "https://head"])
def test_service_of_a_web_server_is_told_to_remove_its_protocol(service):
    protocol = service.partition("/")[0]
    with pytest.raises(NotFoundError, match=f"`service` '{service}' has the .* '{protocol}//'$"):
        parse_service(service)
    with pytest.raises(NotFoundError, match="No credentials factory has been registered"):
        parse_service((protocol.removesuffix(":"), "head:5050"))


def test_processing_modes_are_policies_or_their_names():
    assert parse_processing_mode("parallel_epochs") is ShardingPolicy.OFF
    assert parse_processing_mode("distributed_epoch") is ShardingPolicy.DYNAMIC
    assert parse_processing_mode(ShardingPolicy.DYNAMIC) is ShardingPolicy.DYNAMIC


def test_equal_members_of_other_enums_are_policies():
    class TensorFlows(enum.IntEnum):
        DYNAMIC = 1
        FILE = 3

    assert parse_processing_mode(TensorFlows.DYNAMIC) is ShardingPolicy.DYNAMIC
    with pytest.raises(InvalidArgumentError, match=r"Got <TensorFlows\.FILE: 3>"):
        parse_processing_mode(TensorFlows.FILE)


@pytest.mark.parametrize("port", [-1, 65536])
def test_port_out_of_range_is_refused(port):
    with pytest.raises(InvalidArgumentError, match=rf"`port` must be in \[0, 65535\], got {port}"):
        DispatcherConfig(port=port)
    with pytest.raises(InvalidArgumentError, match="`port` must be"):
        WorkerConfig(dispatcher_address="localhost:1", port=port)


@pytest.mark.parametrize(
    "make", [DispatcherConfig, lambda **fields: WorkerConfig(dispatcher_address="h:1", **fields)]
)
def test_peer_timeout_has_a_least_value(make):
    assert make().peer_timeout_ms == 10_000
    assert make(peer_timeout_ms=1_000).peer_timeout_ms == 1_000
    for value in (0, 999):
        with pytest.raises(
            ValueError, match=rf"`peer_timeout_ms` must be at least 1000, got {value}"
        ):
            make(peer_timeout_ms=value)


def test_none_means_the_default_as_in_tf_data():
    dispatcher = DispatcherConfig(job_gc_check_interval_ms=None, job_gc_timeout_ms=None)
    assert dispatcher == DispatcherConfig()
    assert (dispatcher.job_gc_check_interval, dispatcher.job_gc_timeout) == (600, 300)
    worker = WorkerConfig(
        dispatcher_address="h:1",
        heartbeat_interval_ms=None,
        dispatcher_timeout_ms=None,
        worker_tags=None,  # type: ignore[arg-type]
    )
    assert worker == WorkerConfig(dispatcher_address="h:1")
    assert (worker.heartbeat_interval, worker.dispatcher_timeout) == (1, 3600)


@pytest.mark.parametrize("tags", ["COLOCATED", [5], 5])
def test_worker_tags_are_a_list_of_text(tags):
    with pytest.raises(InvalidArgumentError, match="`worker_tags` must be a list of str, got"):
        WorkerConfig(dispatcher_address="h:1", worker_tags=tags)
