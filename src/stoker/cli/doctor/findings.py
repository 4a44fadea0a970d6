"""The result of a check; findings.toml has all kinds of results, which docs/doctor.md lists too."""

import enum
import tomllib
from importlib.resources import files
from typing import Any

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


class FindingKind(msgspec.Struct, frozen=True):
    """A kind of finding: its usual level, and the formats of the texts of a `Finding`."""

    level: Level
    seen: str
    fix: str = ""


# Data in place of code, so that docs/doctor.md is compared with the texts that are printed.
_TEXT = files("stoker.cli.doctor").joinpath("findings.toml").read_text(encoding="utf-8")

KINDS = msgspec.convert(tomllib.loads(_TEXT), dict[str, dict[str, FindingKind]])
"""Kinds of findings about the dispatcher, workers and this machine, by name."""


def finding(
    about: str, name: str, subject: str = "", level: Level | None = None, **values: Any
) -> Finding:
    """Return a finding of a kind.

    Args:
        about: the table of `KINDS`.
        name: of the kind.
        subject: of the finding, if it is not `about`.
        level: of the finding, if it is not the usual level.
        values: of the texts.
    """
    kind = KINDS[about][name]
    seen, fix = kind.seen.format(**values), kind.fix.format(**values)
    return Finding(level or kind.level, name, subject or about, seen, fix)
