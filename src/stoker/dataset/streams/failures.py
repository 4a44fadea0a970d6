"""Errors of elements: buffered at their position, and marked with where they were raised."""

from contextlib import suppress
from typing import NamedTuple, NoReturn


class Failure:
    """An error travelling as an item to the position it occupies.

    Streams that buffer (shuffle, prefetch, cache) keep one in their buffer where the element would
    have been and raise it when that position is read.

    Attributes:
        error: the exception to raise.
    """

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"Failure({self.error!r})"


class Origin(NamedTuple):
    """Where a user's function raised: the node, the line that built it, the element's number."""

    kind: str
    site: str
    index: int | None  # type: ignore[assignment]  # nobody searches an Origin by tuple.index


_ORIGIN = "__stoker_origin__"


def mark_failure(error: Exception, origin: Origin) -> Exception:
    """Notes on `error` where it was raised; returns what to raise.

    A user's StopIteration becomes a RuntimeError, as in a generator: it would end the stream.
    The innermost mark stays.
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
    """Raises `error` as marked by `mark_failure`."""
    raise mark_failure(error, origin)


def failure_origin(error: BaseException) -> Origin | None:
    """Where `error` was raised, if a user's function raised it."""
    origin = getattr(error, _ORIGIN, None)
    return origin if isinstance(origin, Origin) else None
