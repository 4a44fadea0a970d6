"""The result of a check."""

import enum

import msgspec


class Level(enum.Enum):
    """The weight of a finding; a `FAULT` keeps a trainer on this machine from reading."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"
    NOT_CHECKED = "not checked"


class Finding(msgspec.Struct, frozen=True):
    """One thing that a check has seen.

    Attributes:
        level: its weight.
        name: of the kind of finding, as docs/doctor.md lists it.
        subject: "dispatcher", "workers", "worker host:port" or "this machine".
        seen: what was seen, with numbers.
        fix: what to do; "" if nothing.
    """

    level: Level
    name: str
    subject: str
    seen: str
    fix: str = ""
