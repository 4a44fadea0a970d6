"""Errors of commands."""

from typing import NoReturn

import typer


def fail(message: str) -> NoReturn:
    """Print the error in one line and exit with code 1."""
    typer.echo(f"stoker: {message}", err=True)
    raise typer.Exit(1)


def refuse(message: str) -> NoReturn:
    """Print the error of a wrong usage in one line and exit with code 2."""
    typer.echo(f"stoker: {message}", err=True)
    raise typer.Exit(2)
