"""How a command says that it cannot go on."""

from typing import NoReturn

import typer


def fail(message: str) -> NoReturn:
    """Says what is wrong in one line and ends with exit code 1."""
    typer.echo(f"stoker: {message}", err=True)
    raise typer.Exit(1)
