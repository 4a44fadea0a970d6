"""Errors of elements: buffered at their position, and marked with where they were raised."""

import inspect
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn


class Failure:
    """An error, buffered as an item at the position that it occupies.

    Streams with a buffer (shuffle, prefetch, cache) put it there instead of the element and raise
    it when that position is read.

    Attributes:
        error: the exception to raise.
        traceback: of the error when it was buffered; raising it adds to that of the error itself.
    """

    __slots__ = ("error", "traceback")

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.traceback = error.__traceback__

    def __repr__(self) -> str:
        return f"Failure({self.error!r})"


class Origin(NamedTuple):
    """Origin of a user function's error: the node, its line, the number of the element."""

    kind: str
    site: str
    index: int | None  # type: ignore[assignment]  # hides tuple.index


_ORIGIN = "__stoker_origin__"

_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"


def mark_failure(error: Exception, origin: Origin) -> Exception:
    """Add the origin to an error as a note and an attribute, and return the error to raise.

    A user's StopIteration becomes a RuntimeError, as in a generator, since it would end the stream.
    An error that has an origin keeps it.
    """
    if isinstance(error, StopIteration):
        cause = error
        error = RuntimeError(f"the function of `{origin.kind}` raised StopIteration")
        error.__cause__ = cause
    if failure_origin(error) is None:
        where = f" ({origin.site})" if origin.site else ""
        what = "" if origin.index is None else f", at element {origin.index}"
        error.add_note(f"raised in `{origin.kind}`{where}{what}")
        with suppress(AttributeError, TypeError):  # a class may refuse attributes
            setattr(error, _ORIGIN, origin)
    return error


def raise_failure(error: Exception, origin: Origin) -> NoReturn:
    """Raise the error with its origin (see `mark_failure`)."""
    try:
        raise mark_failure(error, origin)
    finally:  # this frame, which the traceback refers to, must not refer to the error
        del error


def forget_locals(error: BaseException) -> None:
    """Clear the local variables of this package's functions in the traceback of an error.

    Some of them refer to the error: the reader and its threads would stay until a collection of
    cyclic garbage. Functions of the user keep theirs, for debuggers.
    """
    entry = error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if code.co_filename.startswith(_PACKAGE) and not code.co_flags & inspect.CO_GENERATOR:
            with suppress(RuntimeError):  # it runs
                entry.tb_frame.clear()
        entry = entry.tb_next


def failure_origin(error: BaseException) -> Origin | None:
    """Return the origin of an error, if a user function raised it."""
    origin = getattr(error, _ORIGIN, None)
    return origin if isinstance(origin, Origin) else None
