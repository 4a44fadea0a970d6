"""Flags of a command, built from its options for typer."""

import functools
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from stoker.cli.commands import fail
from stoker.cli.options.options import TABLES, Option, flag_of
from stoker.cli.options.sources import CONFIG_VARIABLE
from stoker.cli.options.units import TIME, OptionError
from stoker.cli.options.values import Values, read_values
from stoker.errors import StokerError

_PANELS = {
    "Network": "host port protocol insecure dispatcher_address worker_address "
    "data_transfer_protocol data_transfer_address",
    "Journal": "work_dir fault_tolerant_mode",
    "Jobs and workers": "worker_addresses gc_dynamic_sharding_jobs processes worker_tags",
    "Times": "",
    "Memory": "",
    "Log": "log_level log_format",
    "Without effect": "worker_max_concurrent_snapshots",
    "Other": "",
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


def with_options(table: str) -> Callable[[Callable[[Values], None]], Callable[..., None]]:
    """Give a command the flags of the options in `TABLES[table]`, and ``--config``.

    typer gets texts only: a value may also come from a variable or a file, and its origin belongs
    in the error.
    """

    def decorate(run: Callable[[Values], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def command(config: Path | None, **flags: Any) -> None:
            # Without values the log is JSON as far as flags and variables say so.
            log_format = flags.get("log_format") or os.environ.get("STOKER_LOG_FORMAT")
            try:
                values = read_values(table, flags, str(config) if config else None)
                if "log_format" in values.given:
                    log_format = values.given["log_format"].value
                run(values)
            except StokerError as error:
                exit_code = 2 if isinstance(error, OptionError) else 1
                fail(str(error), exit_code, as_json=log_format == "json")

        parameters = [_keyword("config", Path, _CONFIG)]
        names = {option.name for option in TABLES[table]}
        # typer prints groups in the order of their first options.
        for option in sorted(TABLES[table], key=lambda option: PANELS.index(panel_of(option))):
            parameters += _parameters_of(option, names)
        built = cast("Any", command)
        built.__signature__ = inspect.Signature(parameters)
        built.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def panel_of(option: Option) -> str:
    """Return the title of the group of an option in the help."""
    if option.quantity is not None:
        return "Times" if option.quantity is TIME else "Memory"
    titles = (title for title, names in _PANELS.items() if option.name in names.split())
    return next(titles, "Other")


def _parameters_of(option: Option, names: set[str]) -> list[inspect.Parameter]:
    """Return the parameters of an option and of its other flag."""
    found = [_parameter(option, option.name, _help_text(option, names))]
    if option.alias:
        unit = ", in seconds" if option.alias_unit == "s" else ""
        found.append(_parameter(option, option.alias, f"The same as {option.flag}{unit}."))
    if option.type is bool:
        # Hidden: one sentence below the help describes all flags --no-NAME.
        found.append(_parameter(option, option.other_flag, "", hidden=True))
    return found


def _parameter(
    option: Option, name: str, help_text: str, *, hidden: bool = False
) -> inspect.Parameter:
    def complete(incomplete: str) -> list[str]:
        return [choice for choice in option.choices if choice.startswith(incomplete)]

    info = typer.Option(
        flag_of(name),
        help=help_text.replace("[", "\\["),  # a style for rich begins with "["
        metavar=_metavar(option),
        rich_help_panel=panel_of(option),
        show_default=False,
        autocompletion=complete if option.choices else None,
        hidden=hidden,
    )
    # A text, since "10s" and "64MiB" are ints of these options.
    return _keyword(name, str if option.type is int else option.type, info)


_CONFIG = typer.Option(
    "--config",
    metavar="FILE",
    envvar=CONFIG_VARIABLE,
    show_envvar=False,
    help="TOML file with the tables \\[dispatcher] and \\[worker], whose keys are the names of "
    "the options, such as worker_timeout_ms. A flag has priority over its variable, such as "
    "STOKER_WORKER_TIMEOUT_MS, and this over the key.",
)


def _keyword(name: str, kind: Any, info: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, info]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _metavar(option: Option) -> str:
    if option.choices:
        return "|".join(option.choices)
    if option.name in _METAVARS:
        return _METAVARS[option.name]
    if option.name.endswith("_address"):
        return "HOST[:PORT]"
    if option.quantity is not None:  # the name has the unit, and little space is left for the help
        return ""
    return {bool: "", int: "NUMBER", list[str]: "NAME,..."}.get(option.type, "TEXT")


def _help_text(option: Option, names: set[str]) -> str:
    """Return the text of a docstring as help: names of options are written as flags."""

    # The text is from the docstring of the configuration and names fields.
    def shown(match: re.Match[str]) -> str:
        return flag_of(match[1]) if match[1] in names else match[1]

    text = re.sub(r"`(\w+)`", shown, option.help).replace("`", "")
    text = text[:1].upper() + text[1:]
    if option.required:
        return f"{text} [required]"
    return f"{text} [default: {option.shown_default}]" if option.shown_default else text
