"""The values of a command's options: of flags, else variables, else the file, else defaults."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from stoker.cli.options.environment import stoker_variables, unknown_variables
from stoker.cli.options.errors import OptionError
from stoker.cli.options.fields import Option, flag_of
from stoker.cli.options.parsing import parse_text
from stoker.cli.options.toml_file import Tables, read_file
from stoker.cli.options.units import with_unit
from stoker.errors import StokerError

T = TypeVar("T")


@dataclass(frozen=True)
class Given:
    """A value that the user wrote, and where: a flag, a variable, or a key of the file."""

    value: Any
    origin: str


class Values:
    """Values of the options of one command.

    Args:
        options: the command's.
        given: the values that the user wrote, by option.
        table: the command's table in a configuration file, for errors.
        warnings: a text for each variable STOKER_* that has no effect.

    Attributes:
        warnings: as given.
    """

    def __init__(
        self,
        options: Sequence[Option],
        given: Mapping[str, Given],
        table: str,
        warnings: Sequence[str],
    ) -> None:
        self._options = options
        self._given = given
        self._table = table
        self.warnings = warnings

    def __contains__(self, name: str) -> bool:
        """Return whether the user wrote a value of the option `name`."""
        return name in self._given

    def given(self, name: str) -> Any:
        """Return the value that the user wrote of the option `name`, or ``None``."""
        return self._given[name].value if name in self else None

    def build(self, cls: type[T], **others: Any) -> T:
        """Return the dataclass `cls` with the values of those options that are its fields.

        Args:
            cls: one of the dataclasses of which the options were made.
            others: defaults that depend on other options.

        Raises:
            OptionError: if a required option is missing, or `cls` refuses a value.
        """
        fields = dict(others)
        names = {field.name for field in dataclasses.fields(cast("Any", cls))}
        for option in self._options:
            if option.name not in names:
                continue
            if option.name in self._given:
                fields[option.name] = self._given[option.name].value
            elif option.required:
                raise OptionError(self._missing(option))
            elif option.name not in others:
                fields[option.name] = option.default
        try:
            return cls(**fields)
        except (StokerError, ValueError) as error:
            raise OptionError(self.with_origins(str(error))) from error

    def with_origins(self, message: str) -> str:
        """Return `message` after the origins of the options, or else values, that it names."""
        named = dict.fromkeys(re.findall(r"`(\w+)`", message))
        origins = [self._given[name].origin for name in named if name in self._given]
        if not origins:
            found = [given for given in self._given.values() if isinstance(given.value, str)]
            origins = [given.origin for given in found if repr(given.value) in message]
        return ": ".join([*filter(None, [", ".join(origins)]), message])

    def _missing(self, option: Option) -> str:
        near = [warning for warning in self.warnings if warning.endswith(f"{option.variable}?")]
        ways = (
            f"{option.name} is missing: pass {option.flag}, set {option.variable}, or write the "
            f"key {option.name} in [{self._table}] of a file for --config"
        )
        return "; ".join([ways, *near])


def read_values(
    table: str,
    tables: Tables,
    flags: Mapping[str, Any],
    config: str | None,
    environ: Mapping[str, str] = os.environ,
) -> Values:
    """Return the values of the options of `tables[table]`.

    Args:
        table: the command's table.
        tables: the tables of a configuration file.
        flags: a text, texts or True for each flag that is given; the others are empty, since
            versions of typer differ in `None`, `False` and ``()``.
        config: path of the configuration file.
        environ: the environment.

    Raises:
        OptionError: if a value is not valid, or an alias and its name are both given.
    """
    in_file = {} if config is None else read_file(config, tables).get(table, {})
    variables = stoker_variables(environ)
    flags = {name: value for name, value in flags.items() if isinstance(value, str) or value}
    given = {}
    for option in tables[table]:
        found = _of_flag(option, flags)
        if found is None and option.variable in variables:
            found = _parsed(option, variables[option.variable], option.variable)
        if found is None and option.name in in_file:
            found = Given(in_file[option.name], f"{config}: [{table}] {option.name}")
        if found is not None:
            given[option.name] = found
    known = {option.variable for options in tables.values() for option in options}
    return Values(tables[table], given, table, unknown_variables(environ, known))


def _of_flag(option: Option, flags: Mapping[str, Any]) -> Given | None:
    """Return the value of an option's flag or of its other flag, of which one may be given."""
    other = option.negation if option.type is bool else option.alias.name if option.alias else None
    written = flags.get(option.name)
    if other is None or flags.get(other) is None:
        return None if written is None else _parsed(option, written, option.flag)
    if written is not None:
        raise OptionError(f"{option.flag} and {flag_of(other)} are both given; give one of them")
    if option.type is bool:
        return Given(False, flag_of(other))
    written = flags[other]
    if isinstance(written, str) and option.alias is not None:
        written = with_unit(written, option.alias.unit)
    return _parsed(option, written, flag_of(other))


def _parsed(option: Option, written: Any, origin: str) -> Given:
    """Return the value of a text, of the texts of a repeated flag, or of a flag without text."""
    try:
        if isinstance(written, bool):
            return Given(written, origin)
        if isinstance(written, list | tuple):
            return Given([x for text in written for x in parse_text(option, text)], origin)
        return Given(parse_text(option, written), origin)
    except OptionError as error:
        raise OptionError(f"{origin}: {error}") from None
