"""The ``stoker`` command."""


def main() -> None:
    """Entry point of the ``stoker`` command."""
    from stoker.cli.app import app

    app()
