"""Errors of commands."""

import logging
from typing import NoReturn

import typer


def fail(message: str, *, as_json: bool = False) -> NoReturn:
    """Print the error in one line, as a record if the log is JSON, and exit with code 1."""
    _print(message, as_json=as_json)
    raise typer.Exit(1)


def refuse(message: str, *, as_json: bool = False) -> NoReturn:
    """Print the error of a wrong usage, as `fail` does, and exit with code 2."""
    _print(message, as_json=as_json)
    raise typer.Exit(2)


def _print(message: str, *, as_json: bool) -> None:
    line = f"stoker: {message}"
    if as_json:
        from stoker.service.process.logs import json_line

        line = json_line(logging.ERROR, "stoker.cli", message)
    typer.echo(line, err=True)
