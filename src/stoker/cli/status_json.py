"""The state of a service as JSON."""

from typing import Any

import msgspec
import typer


def print_json(found: Any) -> None:
    """Print structs of `stoker.service.status`, or a list of them, as JSON with all fields."""
    typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
