"""Configurations of the two servers, and the dispatcher's address as users write it."""

import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from stoker.errors import (
    InvalidArgumentError,
    InvalidConfigError,
    InvalidTypeError,
    NotFoundError,
)
from stoker.wire.addresses import (
    format_address,
    is_ipv6,
    is_loopback,
    is_unspecified,
    parse_address,
)

PROTOCOLS = ("grpc",)
DATA_TRANSFER_PROTOCOLS = ("grpc", "tcp")
"""Protocols to which `WorkerConfig.data_transfer_protocol` can restrict a worker."""

DISPATCHER_PORT = 5050
"""Port of a dispatcher whose address names none, and the default of `stoker dispatcher`."""


def parse_service(service: Any, name: str = "service") -> tuple[str, str]:
    """Return ``(protocol, "host:port")`` of an address, a pair, a server or a cluster.

    Args:
        service: the address; an address without a port means `DISPATCHER_PORT`.
        name: the argument's name, for errors.

    Raises:
        InvalidArgumentError: if `service` is not an address.
        NotFoundError: if its protocol does not exist.
    """
    # Servers and clusters have a `target`; an address has no such attribute.
    service = getattr(service, "target", service)
    for part in service if isinstance(service, tuple) else (service,):
        check_text(name, part)
    if isinstance(service, tuple):
        if len(service) != 2 or not all(isinstance(part, str) for part in service):
            raise InvalidArgumentError(
                f"`{name}` as a tuple must be (protocol, address), got {service!r}"
            )
        protocol, address = service
    elif isinstance(service, str):
        if not service:
            raise InvalidArgumentError(f"`{name}` must not be empty")
        # The first clause of these errors is TensorFlow's, which programs may match.
        parts = service.split("://")
        if len(parts) > 2:
            raise InvalidArgumentError(
                f"Malformed `{name}` string has multiple '://': {service}. Write it as "
                "'grpc://host:port'"
            )
        protocol, address = parts if len(parts) == 2 else (PROTOCOLS[0], parts[0])
    else:
        raise InvalidArgumentError(
            f"`{name}` must be a string, but `{name}` was of type {type(service)}. "
            f"{name}={service}. A tuple (protocol, address) is accepted too"
        )
    # An address copied from a browser is the usual case of another protocol.
    if protocol in {"http", "https"} and isinstance(service, str):
        raise NotFoundError(
            f"`{name}` {service!r} has the protocol of web servers, and a dispatcher speaks gRPC; "
            f"remove '{protocol}://'"
        )
    if protocol not in PROTOCOLS:
        protocols = ", ".join(repr(known) for known in PROTOCOLS)
        raise NotFoundError(
            f"No credentials factory has been registered for protocol {protocol}: `{name}` names "
            f"the protocol {protocol!r} of the dispatcher, and there is {protocols}"
        )
    return protocol, format_address(
        *parse_address(address, name=name, default_port=DISPATCHER_PORT)
    )


def check_text(name: str, value: Any) -> None:
    """Refuse a str that cannot be encoded as UTF-8, as messages require; accept all else.

    Raises:
        InvalidArgumentError: if `value`, of the argument `name`, contains a lone surrogate.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                f"`{name}` must be text that can be encoded as UTF-8, got {value!r}"
            ) from None


def _check_texts(name: str, values: Any) -> None:
    """Check that a field is a list or tuple of str that can be encoded."""
    if not isinstance(values, list | tuple) or not all(isinstance(x, str) for x in values):
        raise InvalidTypeError(f"`{name}` must be a list of str, got {values!r}")
    for value in values:
        check_text(name, value)


def check_exposure(host: str, insecure: bool) -> None:
    """Refuse to serve remote machines by default: there is no authentication yet.

    Raises:
        InvalidArgumentError: if `host` is not loopback and `insecure` is not set.
    """
    if not is_loopback(host) and not insecure:
        raise InvalidArgumentError(
            f"`host` {host!r} can be reached from other machines, and everyone who reaches a "
            "stoker server can run code on it. On a network you trust, pass insecure=True "
            "(--insecure on the command line); otherwise bind localhost"
        )


def _check_advertised(name: str, address: str | None) -> None:
    """Check an address that is advertised: "host" or "host:port"."""
    check_text(name, address)
    if not address:
        return
    bare = address.removeprefix("[").removesuffix("]")
    if ":" in bare and "/" not in bare and not is_ipv6(bare):
        # Placeholders are replaced when the port is known; any port replaces them in this check.
        bare = address.replace("%port%", "1").replace("%dts_port%", "1")
        bare = parse_address(bare, name=name)[0]
    if "/" in bare or is_unspecified(bare):
        raise InvalidArgumentError(
            f"`{name}` must be the host or 'host:port' at which others reach the worker, got "
            f"{address!r}; `host` is the address to listen on"
        )


def _check_port(port: Any) -> None:
    # A bool is an int to Python, and would serve on port 0 or 1.
    if not isinstance(port, int) or isinstance(port, bool):
        raise InvalidTypeError(f"`port` must be an int in [0, 65535], got {port!r}")
    if not 0 <= port < 65536:
        raise InvalidArgumentError(f"`port` must be in [0, 65535], got {port}; 0 takes a free one")


def _check_worker_addresses(addresses: Any) -> None:
    """Check the list of workers; a host may be listed several times, a port of a host once."""
    _check_texts("worker_addresses", addresses)
    if not all(addresses):
        raise InvalidArgumentError(
            f"`worker_addresses` must be 'host' or 'host:port', got {addresses!r}"
        )
    # An entry without a port is a place for one worker of the host: several may be alike.
    for address, times in Counter(addresses).items():
        if address.rpartition(":")[2].isdigit() and times > 1:
            raise InvalidArgumentError(
                f"`worker_addresses` has {address!r} more than once, but only one worker can serve "
                "it; for several workers on a host give the host without a port, or 'host:%port%'"
            )


def _check_numbers(config: object, fits: Callable[[float], bool], rule: str, *names: str) -> None:
    """Check number fields; `rule` is the predicate of the error."""
    for name in names:
        value = getattr(config, name)
        if not fits(value):
            raise InvalidArgumentError(f"`{name}` {rule}, got {value}")


def _positive(config: object, *names: str) -> None:
    _check_numbers(config, lambda value: value > 0, "must be positive", *names)


def _fill_in(config: Any) -> None:
    """Replace ``None`` by the field's default, as the configurations of tf.data service do."""
    for field in dataclasses.fields(config):
        if getattr(config, field.name) is not None:
            continue
        if field.default is not dataclasses.MISSING:
            # The dataclass is frozen; `__post_init__` may still complete it.
            object.__setattr__(config, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            object.__setattr__(config, field.name, field.default_factory())


def _check_bounds(config: Any) -> None:
    """Refuse numbers that no message can carry; a 64th bit is the sign's."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise InvalidArgumentError(f"`{field.name}` must be below 2**63, got {value}")


def _check_server(config: "DispatcherConfig | WorkerConfig") -> None:
    """Fill in and check the fields that both servers have."""
    _fill_in(config)
    _check_bounds(config)
    parse_service((config.protocol, "localhost:1"))
    check_text("host", config.host)
    # There is no authentication: whoever reaches a port can run code in a worker.
    check_exposure(config.host, config.insecure)
    _check_port(config.port)
    least = "must be at least 1000"
    _check_numbers(config, lambda value: value >= 1000, least, "peer_timeout_ms")


def _seconds(milliseconds: int | None) -> float:
    assert milliseconds is not None, "filled in by `__post_init__`"
    return milliseconds / 1000


@dataclasses.dataclass(frozen=True)
class DispatcherConfig:
    """Configuration of a dispatcher: the fields of tf.data service, and `host`, `insecure`.

    The fields of TensorFlow 2.21, up to `worker_max_concurrent_snapshots`, may be given by
    position. ``None`` means the default.

    Attributes:
        port: the port to serve on; 0 chooses a free one.
        protocol: "grpc".
        host: the address to bind; other than loopback only with `insecure`.
        insecure: serve other machines without authentication.
        work_dir: directory or URL ("gs://...", "s3://...") of the journal.
        fault_tolerant_mode: keep a journal in `work_dir`, to go on after a restart.
        worker_addresses: the workers, in the order of their shards under static sharding; others
            are refused. Each is "host:port", or "host", "host:%port%" or "host:%name%" for a worker
            of that host at any port. An address may be given several times unless it has a port.
        job_gc_check_interval_ms: interval between two searches for jobs without clients.
        job_gc_timeout_ms: a job without clients for this long is removed; -1 keeps it.
        worker_timeout_ms: a worker without a heartbeat for this long is removed; after 1 s at the
            earliest if its session is open.
        worker_max_concurrent_snapshots: as in tf.data service; has no effect in this version.
        client_timeout_ms: a client without a heartbeat for this long is released.
        gc_dynamic_sharding_jobs: also collect named jobs with dynamic sharding.
        peer_timeout_ms: time in which the dispatcher notices that a worker or client cannot be
            reached, and ends its session; at least 1,000. The lease is not affected.
        dispatcher_patience_ms: with a journal, the time for which clients wait for this dispatcher
            when it cannot be reached, such as while it is restarted. Without one they give up when
            no worker has anything to read.
    """

    port: int = 0
    protocol: str = "grpc"
    work_dir: str | None = None
    fault_tolerant_mode: bool = False
    worker_addresses: list[str] | None = None
    # Optional types where TensorFlow's own default is None: its programs pass it on.
    job_gc_check_interval_ms: int | None = 600_000
    job_gc_timeout_ms: int | None = 300_000
    worker_timeout_ms: int = 10_000
    worker_max_concurrent_snapshots: int = 3
    _: dataclasses.KW_ONLY
    client_timeout_ms: int = 60_000
    gc_dynamic_sharding_jobs: bool = False
    host: str = "localhost"
    insecure: bool = False
    peer_timeout_ms: int = 10_000
    dispatcher_patience_ms: int = 600_000

    @property
    def job_gc_check_interval(self) -> float:
        """`job_gc_check_interval_ms` in seconds."""
        return _seconds(self.job_gc_check_interval_ms)

    @property
    def job_gc_timeout(self) -> float:
        """`job_gc_timeout_ms` in seconds."""
        return _seconds(self.job_gc_timeout_ms)

    def __post_init__(self) -> None:
        _check_server(self)
        _positive(
            self,
            "job_gc_check_interval_ms",
            "worker_timeout_ms",
            "client_timeout_ms",
            "dispatcher_patience_ms",
        )
        # The text is TensorFlow's, as for worker tags below.
        if self.fault_tolerant_mode and not self.work_dir:
            raise InvalidConfigError(
                "Cannot enable fault tolerant mode without configuring a work dir. Make sure to "
                "set `work_dir` in the `config` object passed to `DispatcherServer`."
            )
        if self.worker_addresses is not None:
            _check_worker_addresses(self.worker_addresses)


@dataclasses.dataclass(frozen=True)
class WorkerConfig:
    """Configuration of a worker: the fields of tf.data service, `host`, `insecure` and memory.

    The fields of TensorFlow 2.21, up to `data_transfer_address`, may be given by position. ``None``
    means the default.

    Attributes:
        dispatcher_address: "host:port" or "grpc://host:port", port 5050 if it is left out;
            required.
        worker_address: the host or "host:port" at which others reach this worker; by default
            `host`, or if that means all interfaces, the address of the interface that reaches the
            dispatcher. "%port%" is replaced by the port.
        port: the port to serve elements on; 0 chooses a free one.
        protocol: "grpc".
        heartbeat_interval_ms: interval between heartbeats until the dispatcher answers, which
            sets the interval by its lease and the number of workers.
        dispatcher_timeout_ms: the worker stops when it cannot reach the dispatcher for this long.
        data_transfer_protocol: how other processes read elements: "tcp" at `port` only, "grpc" at
            `port` only, by default "tcp" at `port` and shared memory. "grpc" needs the extra
            ``stoker[grpc]``, and clients that name it too.
        data_transfer_address: as `worker_address`, for elements. A port in it is the one at which
            others reach `port`.
        worker_tags: labels, such as "COLOCATED".
        cross_trainer_cache_size_bytes: about how many bytes of elements each task with a
            cross-trainer cache keeps for slower trainers, besides `buffer_bytes`.
        shutdown_quiet_period_ms: time for which `stop` lets trainers continue to read.
        host: the address to bind; other than loopback only with `insecure`.
        insecure: serve other machines without authentication.
        buffer_bytes: about how many bytes each task computes ahead of its readers, and how many
            each reader is sent ahead of its user.
        shared_memory_bytes: most bytes of memory to share with trainers on this host; elements
            that do not fit are copied. 0 shares none.
        peer_timeout_ms: time in which a connection of this worker, to a trainer or the dispatcher,
            notices that the other end cannot be reached; at least 1,000.
    """

    dispatcher_address: str
    worker_address: str | None = None
    port: int = 0
    protocol: str = "grpc"
    heartbeat_interval_ms: int | None = 1_000
    dispatcher_timeout_ms: int | None = 3_600_000
    data_transfer_protocol: str | None = None
    data_transfer_address: str | None = None
    _: dataclasses.KW_ONLY
    worker_tags: list[str] = dataclasses.field(default_factory=list)
    cross_trainer_cache_size_bytes: int = 10 << 30
    shutdown_quiet_period_ms: int = 0
    host: str = "localhost"
    insecure: bool = False
    buffer_bytes: int = 64 << 20
    shared_memory_bytes: int = 256 << 20
    peer_timeout_ms: int = 10_000

    @property
    def heartbeat_interval(self) -> float:
        """`heartbeat_interval_ms` in seconds."""
        return _seconds(self.heartbeat_interval_ms)

    @property
    def dispatcher_timeout(self) -> float:
        """`dispatcher_timeout_ms` in seconds."""
        return _seconds(self.dispatcher_timeout_ms)

    def __post_init__(self) -> None:
        _check_server(self)
        parse_service(self.dispatcher_address, "dispatcher_address")
        _check_texts("worker_tags", self.worker_tags)
        _check_advertised("worker_address", self.worker_address)
        _check_advertised("data_transfer_address", self.data_transfer_address)
        _positive(self, "heartbeat_interval_ms", "dispatcher_timeout_ms", "buffer_bytes")
        _positive(self, "cross_trainer_cache_size_bytes")
        if any(not tag for tag in self.worker_tags):
            raise InvalidConfigError(
                f"Worker tags cannot be empty. Got tags {{{', '.join(self.worker_tags)}}}"
            )
        at_least_0 = "must not be negative"
        names = "shared_memory_bytes", "shutdown_quiet_period_ms"
        _check_numbers(self, lambda value: value >= 0, at_least_0, *names)
        if self.data_transfer_protocol not in (None, *DATA_TRANSFER_PROTOCOLS):
            known = ", ".join(repr(name) for name in DATA_TRANSFER_PROTOCOLS)
            raise NotFoundError(
                f"no data transfer protocol {self.data_transfer_protocol!r} to serve; "
                f"there are {known}"
            )
        if self.data_transfer_protocol is not None:
            from stoker.wire.transports import get_transport  # costs more than all of this module

            get_transport(self.data_transfer_protocol)


ConfigT = TypeVar("ConfigT", DispatcherConfig, WorkerConfig)


def config_of(cls: type[ConfigT], config: ConfigT | None, fields: dict[str, Any]) -> ConfigT:
    """Return the configuration of a server, given whole or by its fields.

    Raises:
        InvalidTypeError: if both are given, `config` has another type, or a field is unknown or
            missing.
        InvalidArgumentError: if a field is not valid.
    """
    if config is not None and fields:
        raise InvalidTypeError(f"give a config or fields, not both: {sorted(fields)}")
    if config is not None:
        if not isinstance(config, cls):
            raise InvalidTypeError(f"`config` must be a {cls.__name__}, got {config!r}")
        return config
    try:
        # Binding alone tells an unknown field from a TypeError that a check of `cls` raises.
        inspect.signature(cls).bind(**fields)
    except TypeError as error:
        raise InvalidTypeError(f"not the fields of {cls.__name__}: {error}") from error
    return cls(**fields)
