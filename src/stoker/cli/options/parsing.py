"""Values of options, from text and from TOML."""

import re
from typing import Any

from stoker.cli.options.errors import OptionError
from stoker.cli.options.fields import Option

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")

_TOML_NAMES = {bool: "a boolean", int: "an integer", str: "a string", list: "an array of strings"}


def parse_text(option: Option, text: str) -> Any:
    """Return the value of a flag or a variable.

    Raises:
        OptionError: if `text` is not a value of the option.
    """
    if option.type is bool:
        return _parse_bool(text)
    if option.type is list:
        entries = [entry.strip() for entry in text.split(",")]
        if not all(entries):
            raise OptionError(f"{text!r} has an empty entry")
        return entries
    if option.quantity is not None:
        return option.quantity.parse(text)
    if option.type is int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()):
            raise OptionError(f"{text!r} is not a whole number")
        return int(text)
    return _check_choice(option, text)


def from_toml(option: Option, value: Any) -> Any:
    """Return the value of a key; times and sizes are integers or strings with a unit.

    Raises:
        OptionError: if `value` has another type than the option, or is not a value of it.
    """
    if option.quantity is not None and type(value) is str:
        return option.quantity.parse(value)
    is_array_of_str = type(value) is list and all(type(entry) is str for entry in value)
    if type(value) is not option.type or (option.type is list and not is_array_of_str):
        unit = ' or a string such as "10s"' if option.quantity else ""
        unit = unit.replace("10s", "64MiB") if option.name.endswith("_bytes") else unit
        raise OptionError(f"it must be {_TOML_NAMES[option.type]}{unit}, got {_toml_text(value)}")
    return _check_choice(option, value)


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise OptionError(f"{text!r} is neither true nor false (yes, no, on, off, 1, 0)")
    return word in _TRUE


def _check_choice(option: Option, value: Any) -> Any:
    if option.choices and value not in option.choices:
        raise OptionError(f"there is no {value!r}; choose from {', '.join(option.choices)}")
    return value


def _toml_text(value: Any) -> str:
    """Return `value` roughly in the syntax of TOML."""
    return str(value).lower() if isinstance(value, bool) else repr(value)
