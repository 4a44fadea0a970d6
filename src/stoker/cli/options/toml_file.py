"""The configuration file: TOML with one table for each kind of server."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker.cli.options.environment import did_you_mean
from stoker.cli.options.errors import OptionError
from stoker.cli.options.fields import Option
from stoker.cli.options.parsing import from_toml

Tables = Mapping[str, Sequence[Option]]
"""The tables that a file may have, each with its keys."""


def read_file(path: str, tables: Tables) -> dict[str, dict[str, Any]]:
    """Return the values of each table of a file, all of which are checked.

    Raises:
        OptionError: if the file cannot be read, is not TOML, has an unknown table or key, or a
            value is not one of its key.
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # also of text that is not UTF-8
        raise OptionError(f"{path} is not TOML: {error}") from None
    try:
        return {
            table: _read_table(table, content[table], tables) for table in _tables(content, tables)
        }
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def _tables(content: Mapping[str, Any], tables: Tables) -> list[str]:
    """Return the names of the tables in a file, all of which exist."""
    known = " and ".join(f"[{name}]" for name in tables)
    for name, value in content.items():
        if name not in tables and not isinstance(value, dict):
            owners = [f"[{table}]" for table in tables if name in _names(tables[table])]
            place = f"write it below {' or '.join(owners)}" if owners else f"there are {known}"
            raise OptionError(f"the key {name} is in no table; {place}")
        if name not in tables:
            raise OptionError(
                f"there is no table [{name}], only {known}{did_you_mean(name, tables)}"
            )
        if not isinstance(value, dict):
            raise OptionError(f"{name} must be a table, [{name}], got {value!r}")
    return list(content)


def _read_table(table: str, content: Mapping[str, Any], tables: Tables) -> dict[str, Any]:
    options = {option.name: option for option in tables[table]}
    values = {}
    for key, value in content.items():
        if key not in options:
            raise OptionError(f"[{table}] has no key {key}{_meant(key, table, tables)}")
        try:
            values[key] = from_toml(options[key], value)
        except OptionError as error:
            raise OptionError(f"[{table}] {key}: {error}") from None
    return values


def _meant(key: str, table: str, tables: Tables) -> str:
    for option in tables[table]:
        if option.alias is not None and option.alias.name == key:
            return f"; did you mean {option.name}?"
    others = [other for other, options in tables.items() if key in _names(options)]
    if others:
        return f"; it is a key of [{others[0]}]"
    return did_you_mean(key, _names(tables[table]))


def _names(options: Sequence[Option]) -> list[str]:
    return [option.name for option in options]
