"""Flags of a command, built from its options for typer."""

import functools
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from stoker.cli.failure import refuse
from stoker.cli.options.environment import CONFIG_VARIABLE, stoker_variables
from stoker.cli.options.errors import OptionError
from stoker.cli.options.fields import Option, flag_of
from stoker.cli.options.toml_file import Tables
from stoker.cli.options.units import TIME
from stoker.cli.options.values import Values, read_values

_PANELS = {
    "Network": (
        *("host", "port", "protocol", "insecure", "dispatcher_address", "worker_address"),
        *("data_transfer_protocol", "data_transfer_address"),
    ),
    "Journal": ("work_dir", "fault_tolerant_mode"),
    "Jobs and workers": (
        *("worker_addresses", "gc_dynamic_sharding_jobs"),
        *("processes", "worker_tags"),
    ),
    "Times": (),
    "Memory": (),
    "Log": ("log_level", "log_format"),
    "Without effect": ("worker_max_concurrent_snapshots",),
    "Other": (),
}

PANELS = tuple(_PANELS)
"""Titles of the groups of options in the help, in their order."""

NOTES = (
    "Options in -ms take 500ms, 10s, 2min or 1h; a number alone is milliseconds. Options in -bytes "
    "take 64kB, 1GB (powers of 1000), 256MiB or 1GiB (powers of 1024); a number alone is bytes. "
    "--no-NAME turns an option off that has no value."
)
"""Text below the help of a command."""

_METAVARS = {"host": "HOST", "work_dir": "PATH", "worker_max_concurrent_snapshots": ""}


def with_options(
    table: str, tables: Tables
) -> Callable[[Callable[[Values], None]], Callable[..., None]]:
    """Give a command the flags of the options in `tables[table]`, and ``--config``.

    typer gets texts only: a value may also come from a variable or a file, and its origin belongs
    in the error.
    """

    def decorate(run: Callable[[Values], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def command(config: Path | None, **flags: Any) -> None:
            values = None
            try:
                values = read_values(table, tables, flags, None if config is None else str(config))
                run(values)
            except OptionError as error:
                refuse(str(error), as_json=_logs_json(values, flags))

        parameters = [_config_parameter()]
        names = {option.name for option in tables[table]}
        for option in sorted(tables[table], key=lambda option: PANELS.index(panel_of(option))):
            parameters += _parameters_of(option, names)
        built = cast("Any", command)
        built.__signature__ = inspect.Signature(parameters)
        built.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def _logs_json(values: Values | None, flags: dict[str, Any]) -> bool:
    """Return whether the log is JSON; without values, as far as flags and variables say so."""
    if values is not None:
        return bool(values.given("log_format") == "json")
    variable = stoker_variables(os.environ).get("STOKER_LOG_FORMAT")
    return (flags.get("log_format") or variable) == "json"


def panel_of(option: Option) -> str:
    """Return the title of the group of an option in the help."""
    if option.quantity is not None:
        return "Times" if option.quantity is TIME else "Memory"
    return next((title for title, names in _PANELS.items() if option.name in names), "Other")


def _parameters_of(option: Option, names: set[str]) -> list[inspect.Parameter]:
    """Return the parameters of an option and of its other flags."""
    found = [_parameter(option, option.name, _help_text(option, names))]
    if option.alias is not None:
        unit = ", in seconds" if option.alias.unit == "s" else ""
        found.append(_parameter(option, option.alias.name, f"The same as {option.flag}{unit}."))
    if option.type is bool:
        found.append(_parameter(option, option.negation, "", hidden=True))
    return found


def _parameter(
    option: Option, name: str, help_text: str, *, hidden: bool = False
) -> inspect.Parameter:
    info = typer.Option(
        flag_of(name),
        help=_escape(help_text),
        metavar=_metavar(option),
        rich_help_panel=panel_of(option),
        show_default=False,
        autocompletion=_completion(option.choices) if option.choices else None,
        hidden=hidden,
    )
    kind = bool if option.type is bool else list[str] if option.type is list else str
    return _keyword(name, Annotated[kind | None, info])


def _config_parameter() -> inspect.Parameter:
    info = typer.Option(
        "--config",
        metavar="FILE",
        envvar=CONFIG_VARIABLE,
        show_envvar=False,
        help="TOML file with the tables \\[dispatcher] and \\[worker], whose keys are the names of "
        "the options, such as worker_timeout_ms. A flag has priority over its variable, such as "
        "STOKER_WORKER_TIMEOUT_MS, and this over the key.",
    )
    return _keyword("config", Annotated[Path | None, info])


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _completion(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def _metavar(option: Option) -> str:
    if option.choices:
        return "|".join(option.choices)
    if option.name in _METAVARS:
        return _METAVARS[option.name]
    if option.name.endswith("_address"):
        return "HOST[:PORT]"
    if option.quantity is not None:  # the name has the unit, and little space is left for the help
        return ""
    return {bool: "", int: "NUMBER", list: "NAME,..."}.get(option.type, "TEXT")


def _help_text(option: Option, names: set[str]) -> str:
    """Return the text of a docstring as help: names of options are written as flags."""
    text = re.sub(r"`(\w+)`", lambda match: _word(match[1], names), option.help).replace("`", "")
    text = text[:1].upper() + text[1:]
    if option.required:
        return f"{text} [required]"
    return f"{text} [default: {option.shown_default}]" if option.shown_default else text


def _word(word: str, names: set[str]) -> str:
    return flag_of(word) if word in names else word


def _escape(text: str) -> str:
    r"""Return `text` with ``\[`` for ``[``, which begins a style for rich."""
    return text.replace("[", "\\[")
