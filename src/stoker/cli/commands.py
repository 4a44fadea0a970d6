"""Groups and commands of typer, whose help names no type after a flag without a value; errors."""

import logging
from collections.abc import Callable
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from stoker.errors import StokerError


def fail(message: str, exit_code: int = 1, *, as_json: bool = False) -> NoReturn:
    """Print the error in one line, as a record if the log is JSON, and exit.

    The code is 1, and 2 after a wrong usage, as of typer.
    """
    line = f"stoker: {message}"
    if as_json:
        from stoker.service.process.logs import json_line

        line = json_line(logging.ERROR, "stoker.cli", message)
    typer.echo(line, err=True)
    raise typer.Exit(exit_code)


class _WithoutTypes:
    """Remove the "<bool>" that typer prints after flags, also after those of its own."""

    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)  # type: ignore[misc]  # of the command
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class _PlainCommand(_WithoutTypes, TyperCommand):
    pass


class _CommandGroup(_WithoutTypes, TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        # An error of stoker says what happened and what to do; a traceback would hide that.
        try:
            return super().invoke(ctx)
        except StokerError as error:
            fail(str(error))


class TyperApp(typer.Typer):
    """A group of commands, which prints its help if no command is given."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_CommandGroup, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Return the decorator that adds a function as a command."""
        return super().command(name, cls=_PlainCommand, **settings)
