"""Values of options in texts, in variables STOKER_*, and in a configuration file in TOML."""

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from stoker.cli.options.options import TABLES, Option
from stoker.cli.options.units import TIME, OptionError

PREFIX = "STOKER_"
CONFIG_VARIABLE = "STOKER_CONFIG"

_KEYS = {table: {option.name: option for option in options} for table, options in TABLES.items()}
"""The tables that a file may have, each with its keys."""

_KUBERNETES = re.compile(
    r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
_KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://")

_WORDS = MappingProxyType({"yes": "true", "on": "true", "no": "false", "off": "false"})
_TOML_NAMES = MappingProxyType(
    {bool: "a boolean", int: "an integer", str: "a string", list[str]: "an array of strings"}
)


def parse_text(option: Option, text: str) -> Any:
    """Return the value of a flag or a variable.

    Raises:
        OptionError: if `text` is not a value of the option.
    """
    if option.type == list[str]:
        entries = [entry.strip() for entry in text.split(",")]
        # A comma too many is likelier than an empty name.
        if not all(entries):
            raise OptionError(f"{text!r} has an empty entry")
        return entries
    if option.quantity is not None:
        return option.quantity.parse(text)
    if option.type is str:
        return _check_choice(option, text)
    # msgspec accepts true, false, 1 and 0 in a text.
    word = text.strip().lower()
    try:
        return msgspec.convert(_WORDS.get(word, word), option.type, strict=False)
    except msgspec.ValidationError:
        truth = "neither true nor false (yes, no, on, off, 1, 0)"
        what = truth if option.type is bool else "not a whole number"
        raise OptionError(f"{text!r} is {what}") from None


def _from_toml(option: Option, value: Any) -> Any:
    """Return the value of a key; times and sizes are integers or strings with a unit."""
    if option.quantity is not None and isinstance(value, str):
        return option.quantity.parse(value)
    try:
        # Strict, since TOML has types: `port = "1"` is a mistake.
        return _check_choice(option, msgspec.convert(value, option.type))
    except msgspec.ValidationError:
        example = "10s" if option.quantity is TIME else "64MiB"
        unit = f' or a string such as "{example}"' if option.quantity else ""
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        raise OptionError(f"it must be {_TOML_NAMES[option.type]}{unit}, got {text}") from None


def _check_choice(option: Option, value: Any) -> Any:
    if option.choices and value not in option.choices:
        raise OptionError(f"there is no {value!r}; choose from {', '.join(option.choices)}")
    return value


# ── variables ─────────────────────────────────────────────────────────────────────────────────────
def stoker_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a user has set for stoker, without empty ones.

    A pod has variables of each service of its namespace: with a service named "stoker",
    ``STOKER_PORT=tcp://10.0.0.1:5050``. They are no options.
    """
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIX)
        and value
        and not _KUBERNETES.search(name)
        and not (name.endswith("_PORT") and _KUBERNETES_PORT.match(value))
    }


def unknown_variables(environ: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return a warning for each variable STOKER_* that no command reads."""
    return [
        f"the environment variable {name} has no effect: it is no option of stoker"
        + _did_you_mean(name, known)
        for name in sorted(set(stoker_variables(environ)) - {*known, CONFIG_VARIABLE})
    ]


def _did_you_mean(name: str, known: Collection[str]) -> str:
    """Return "; did you mean ...?" with the known name nearest to `name`, if one is near."""
    # 0.7 finds exchanged and missing letters; less would name options of another meaning.
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


# ── the configuration file ────────────────────────────────────────────────────────────────────────
def read_file(path: str) -> dict[str, dict[str, Any]]:
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
        # All tables are checked, since one file is for both servers.
        for name, value in content.items():
            _check_table(name, value)
        return {
            table: {key: _read_key(table, key, value) for key, value in keys.items()}
            for table, keys in content.items()
        }
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def _check_table(name: str, value: Any) -> None:
    """Refuse an entry of a file that is not one of the tables."""
    is_table, known = isinstance(value, dict), " and ".join(f"[{table}]" for table in _KEYS)
    if name in _KEYS and not is_table:
        raise OptionError(f"{name} must be a table, [{name}], got {value!r}")
    if name not in _KEYS and is_table:
        raise OptionError(f"there is no table [{name}], only {known}{_did_you_mean(name, _KEYS)}")
    if name not in _KEYS:
        owners = " or ".join(f"[{table}]" for table in _KEYS if name in _KEYS[table])
        place = f"write it below {owners}" if owners else f"there are {known}"
        raise OptionError(f"the key {name} is in no table; {place}")


def _read_key(table: str, key: str, value: Any) -> Any:
    if key not in _KEYS[table]:
        # The nearest name is the least of the hints: an alias or a key of another table is exact.
        hints = [f"; did you mean {x.name}?" for x in _KEYS[table].values() if x.alias == key]
        hints += [f"; it is a key of [{other}]" for other in _KEYS if key in _KEYS[other]]
        hints.append(_did_you_mean(key, _KEYS[table]))
        raise OptionError(f"[{table}] has no key {key}{hints[0]}")
    try:
        return _from_toml(_KEYS[table][key], value)
    except OptionError as error:
        raise OptionError(f"[{table}] {key}: {error}") from None
