"""Options of `stoker dispatcher` and `stoker worker`."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from stoker.cli.options.fields import Alias, Option, options_of
from stoker.errors import InvalidArgumentError
from stoker.service.config import (
    DATA_TRANSFER_PROTOCOLS,
    DISPATCHER_PORT,
    PROTOCOLS,
    DispatcherConfig,
    WorkerConfig,
)


@dataclass(frozen=True)
class LogFields:
    """The log of a server on standard error.

    Attributes:
        log_level: the least level of log lines.
        log_format: lines of text or of JSON.
    """

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"


@dataclass(frozen=True)
class ProcessFields:
    """The worker processes of one `stoker worker`.

    Attributes:
        processes: number of worker processes; more than one for pure-Python functions.
    """

    processes: int = 1

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise InvalidArgumentError(f"`processes` must be at least 1, got {self.processes}")


_PROTOCOL = {"choices": PROTOCOLS, "help": "protocol of the control plane."}

_DISPATCHER: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "port": {"default": DISPATCHER_PORT},
        "protocol": _PROTOCOL,
        "worker_max_concurrent_snapshots": {"help": "has no effect in this version."},
        "fault_tolerant_mode": {"shown": "true with --work-dir"},
    }
)

_WORKER: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "dispatcher_address": {
            "help": "the dispatcher, as HOST:PORT or grpc://HOST:PORT; port 5050 if it is left "
            "out.",
            "alias": Alias("dispatcher"),
        },
        "port": {
            "help": "the port of the first process, the next of the second, ...; 0: any free ones."
        },
        "protocol": _PROTOCOL,
        "data_transfer_protocol": {"choices": DATA_TRANSFER_PROTOCOLS},
        "worker_tags": {"alias": Alias("tags")},
        "cross_trainer_cache_size_bytes": {"alias": Alias("cross_trainer_cache_bytes")},
        "shutdown_quiet_period_ms": {
            "default": 25_000,
            "help": "time after SIGTERM in which trainers may read what is computed; a second "
            "SIGTERM ends it.",
            "alias": Alias("grace", unit="s"),
        },
    }
)

TABLES: Mapping[str, list[Option]] = MappingProxyType(
    {
        "dispatcher": options_of(DispatcherConfig, _DISPATCHER) + options_of(LogFields, {}),
        "worker": options_of(WorkerConfig, _WORKER)
        + options_of(ProcessFields, {})
        + options_of(LogFields, {}),
    }
)
"""The options of each server, which are also the tables of a configuration file."""
