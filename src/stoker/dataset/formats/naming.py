"""What the system raises while a file is written, with the file's name and what becomes of it."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def naming(path: str, outcome: str) -> Iterator[None]:
    """Says which file it was, and the outcome: ``"nothing is kept of this pass"``."""
    try:
        yield
    except OSError as error:
        raise named(error, path, outcome) from error


def named(error: OSError, path: str, outcome: str) -> OSError:
    """The error that `naming` raises, for code too hot for a ``with``."""
    return OSError(error.errno or 0, f"{error.strerror or error}: {outcome}", path)
