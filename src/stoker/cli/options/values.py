"""The values of a command's options: of flags, else variables, else the file, else defaults."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

import msgspec

from stoker.cli.options.options import TABLES, Option, flag_of
from stoker.cli.options.sources import parse_text, read_file, stoker_variables, unknown_variables
from stoker.cli.options.units import OptionError, with_unit
from stoker.errors import StokerError

T = TypeVar("T")


@dataclass(frozen=True)
class Given:
    """A value that the user wrote, and where: a flag, a variable, or a key of the file."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Values:
    """Values of the options of one command.

    Attributes:
        table: the command's table in a configuration file, for errors.
        given: the values that the user wrote, by option.
        warnings: a text for each variable STOKER_* that has no effect.
    """

    table: str
    given: Mapping[str, Given]
    warnings: Sequence[str]

    def build(self, cls: type[T], **others: Any) -> T:
        """Return the dataclass `cls` with the values of those options that are its fields.

        Args:
            cls: one of the dataclasses of which the options were made.
            others: defaults that depend on other options.

        Raises:
            OptionError: if a required option is missing, or `cls` refuses a value.
        """
        options = TABLES[self.table]
        values = {option.name: option.default for option in options if not option.required}
        values |= others | {name: given.value for name, given in self.given.items()}
        names = {field.name for field in fields(cast("Any", cls))}
        for option in options:
            if option.name in names - {*values}:
                raise OptionError(self._missing(option))
        try:
            # Fields of the other dataclasses of the command are unknown to `cls`, and ignored.
            return msgspec.convert(values, cls)
        # msgspec raises a ValueError of its own for an error of `__post_init__`.
        except (StokerError, ValueError) as error:
            raise OptionError(self.with_origins(str(error))) from error

    def with_origins(self, message: str) -> str:
        """Return `message` after the origins of the options, or else values, that it names."""
        # Errors of a configuration name the field in backquotes; errors below repeat the value.
        named = dict.fromkeys(re.findall(r"`(\w+)`", message))
        origins = [self.given[name].origin for name in named if name in self.given]
        if not origins:
            found = [given for given in self.given.values() if isinstance(given.value, str)]
            origins = [given.origin for given in found if repr(given.value) in message]
        return ": ".join([*filter(None, [", ".join(origins)]), message])

    def _missing(self, option: Option) -> str:
        # A variable with a typing error is the likely reason.
        near = [warning for warning in self.warnings if warning.endswith(f"{option.variable}?")]
        ways = (
            f"{option.name} is missing: pass {option.flag}, set {option.variable}, or write the "
            f"key {option.name} in [{self.table}] of a file for --config"
        )
        return "; ".join([ways, *near])


def read_values(
    table: str,
    flags: Mapping[str, Any],
    config: str | None,
    environ: Mapping[str, str] = os.environ,
) -> Values:
    """Return the values of the options of `TABLES[table]`.

    Args:
        table: the command's table.
        flags: a text, texts or True for each flag that is given; the others are empty, since
            versions of typer differ in `None`, `False` and ``()``.
        config: path of the configuration file.
        environ: the environment.

    Raises:
        OptionError: if a value is not valid, or an alias and its name are both given.
    """
    in_file = {} if config is None else read_file(config).get(table, {})
    variables = stoker_variables(environ)
    flags = {name: value for name, value in flags.items() if isinstance(value, str) or value}
    given = {}
    for option in TABLES[table]:
        other_flag = flag_of(option.other_flag)
        if option.name in flags and option.other_flag in flags:
            raise OptionError(f"{option.flag} and {other_flag} are both given; give one of them")
        if option.name in flags:
            given[option.name] = _parsed(option, flags[option.name], option.flag)
        elif option.other_flag in flags:
            written = flags[option.other_flag]
            if option.type is bool:
                written = "false"
            elif option.alias_unit:
                written = with_unit(written, option.alias_unit)
            given[option.name] = _parsed(option, written, other_flag)
        elif option.variable in variables:
            given[option.name] = _parsed(option, variables[option.variable], option.variable)
        elif option.name in in_file:
            origin = f"{config}: [{table}] {option.name}"
            given[option.name] = Given(in_file[option.name], origin)
    # Variables of the other server may be set on a machine that runs both.
    known = {option.variable for options in TABLES.values() for option in options}
    return Values(table, given, unknown_variables(environ, known))


def _parsed(option: Option, written: Any, origin: str) -> Given:
    """Return the value of a text, of the texts of a repeated flag, or of a flag without text."""
    try:
        if isinstance(written, list | tuple):
            return Given([x for text in written for x in parse_text(option, text)], origin)
        return Given(parse_text(option, str(written)), origin)
    except OptionError as error:
        raise OptionError(f"{origin}: {error}") from None
