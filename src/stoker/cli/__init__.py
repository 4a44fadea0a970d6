"""The command line: ``stoker dispatcher | worker | demo``."""


def main() -> None:
    """Entry point of the ``stoker`` command."""
    from stoker.cli.app import app

    app()
