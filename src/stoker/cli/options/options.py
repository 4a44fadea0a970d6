"""Options of `stoker dispatcher` and `stoker worker`, read from the dataclasses they configure."""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from stoker.cli.options.units import SIZE, TIME, Quantity
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

    processes: int = 1  # the supervisor refuses a number below 1


@dataclass(frozen=True)
class Option:
    """One option: a flag ``--some-name``, a variable ``STOKER_SOME_NAME``, a key ``some_name``.

    Attributes:
        name: the name of the field.
        type: `bool`, `int`, `str` or ``list[str]``.
        default: the default; ``MISSING`` of `dataclasses` if the option is required.
        help: text of the docstring's "Attributes".
        choices: the values that exist, if there are few.
        shown: the default in words, if it depends on other options.
        alias: another, shorter flag, which is no variable and no key.
        alias_unit: unit of a number alone after the other flag, if it is not that of the option.
    """

    name: str
    type: Any
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    shown: str = ""
    alias: str = ""
    alias_unit: str = ""

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def quantity(self) -> Quantity | None:
        """Units of an int that is a time or a size."""
        return next((x for end, x in _QUANTITIES.items() if self.name.endswith(end)), None)

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def other_flag(self) -> str:
        """Name of the alias, or of the flag that turns a bool off; "" if there is none."""
        return f"no_{self.name}" if self.type is bool else self.alias

    @property
    def variable(self) -> str:
        return f"STOKER_{self.name.upper()}"

    @property
    def shown_default(self) -> str:
        """The default as a user would write it; empty if there is none."""
        if self.shown or self.default in (None, []):
            return self.shown
        if self.quantity is not None:
            return self.quantity.format(self.default)
        return str(self.default).lower() if self.type is bool else str(self.default)


_QUANTITIES = MappingProxyType({"_ms": TIME, "_bytes": SIZE})


def flag_of(name: str) -> str:
    """Return the flag of a name, such as ``--work-dir`` of ``work_dir``."""
    return f"--{name.replace('_', '-')}"


def attribute_texts(cls: type) -> dict[str, str]:
    """Return the text of each attribute in the "Attributes" of a docstring; none under ``-OO``."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", text, re.MULTILINE)
    return {name: " ".join(entry.split()) for name, entry in entries}


# Options are made from the dataclasses and their docstrings, so that no field lacks a flag.
# (docs/decisions/096)
def _options(*classes: type, **differences: Mapping[str, Any]) -> list[Option]:
    """Return the options of the fields of dataclasses, in their order.

    Args:
        classes: the dataclasses.
        differences: for each name of a field the attributes of its option that differ from it.
    """
    found = []
    for cls in classes:
        texts, annotations = attribute_texts(cls), typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            kind = annotations[field.name]
            if isinstance(kind, types.UnionType):  # None is the default of tf.data service
                kind = typing.get_args(kind)[0]
            values = {"type": kind, "default": field.default, "help": texts.get(field.name, "")}
            if typing.get_origin(kind) is Literal:
                values |= {"type": str, "choices": typing.get_args(kind)}
            if field.default_factory is not dataclasses.MISSING:
                values["default"] = []
            found.append(Option(field.name, **{**values, **differences.get(field.name, {})}))
    return found


_PROTOCOL = {"choices": PROTOCOLS, "help": "protocol of the control plane."}

TABLES: Mapping[str, list[Option]] = MappingProxyType(
    {
        "dispatcher": _options(
            DispatcherConfig,
            LogFields,
            # A fixed port, so that addresses of the dispatcher need not name the port.
            port={"default": DISPATCHER_PORT},
            protocol=_PROTOCOL,
            worker_max_concurrent_snapshots={"help": "has no effect in this version."},
            fault_tolerant_mode={"shown": "true with --work-dir"},
        ),
        "worker": _options(
            WorkerConfig,
            ProcessFields,
            LogFields,
            dispatcher_address={
                "help": "the dispatcher, as HOST:PORT or grpc://HOST:PORT; port 5050 if it is "
                "left out.",
                "alias": "dispatcher",
            },
            port={
                "help": "the port of the first process, the next of the second, ...; 0: any free "
                "ones."
            },
            protocol=_PROTOCOL,
            data_transfer_protocol={"choices": DATA_TRANSFER_PROTOCOLS},
            worker_tags={"alias": "tags"},
            cross_trainer_cache_size_bytes={"alias": "cross_trainer_cache_bytes"},
            shutdown_quiet_period_ms={
                # Kubernetes sends SIGKILL 30 s after SIGTERM by default.
                "default": 25_000,
                "help": "time after SIGTERM in which trainers may read what is computed; a second "
                "SIGTERM ends it.",
                "alias": "grace",
                "alias_unit": "s",
            },
        ),
    }
)
"""The options of each server, which are also the tables of a configuration file."""
