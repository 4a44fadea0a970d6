"""Errors of elements: buffered at their position, and marked with their origin."""

import inspect
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from stoker.elements.brief import brief
from stoker.errors import UserFunctionError

logger = logging.getLogger("stoker")


class Failure:
    """An error, buffered as an item at its position.

    Streams with a buffer (shuffle, prefetch, cache) put a failure there instead of the element and
    raise the error when that position is read.

    Attributes:
        error: the exception to raise.
        traceback: of the error when buffered; raising adds to the traceback of the error itself.
    """

    __slots__ = ("error", "traceback")

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.traceback = error.__traceback__

    def __repr__(self) -> str:
        return f"Failure({self.error!r})"


class Origin(NamedTuple):
    """Origin of a user function's error: the node, its line, the number of the element, its input.

    `argument` is a short text of the input; ``""`` if there is none.
    """

    kind: str
    site: str
    index: int | None  # type: ignore[assignment]  # hides tuple.index
    argument: str = ""

    def at(self, index: int, argument: Any) -> "Origin":
        """Return the origin for the element with this number, the input of the function."""
        return self.of(index)._replace(argument=brief(argument))

    def of(self, index: int) -> "Origin":
        """Return the origin for the element with this number."""
        return self._replace(index=index)

    def note(self) -> str:
        """Return the note that an error gets."""
        where = f" ({self.site})" if self.site else ""
        return f"raised in `{self.kind}`{where}{self.position()}"

    def position(self) -> str:
        """Return the input and the number of the element, for the end of a text."""
        text = f", for the input {self.argument}" if self.argument else ""
        return text if self.index is None else f"{text}, at element {self.index}"


class OriginInWhole(NamedTuple):
    """Origin of the errors of a stream that numbers its elements otherwise than the whole epoch.

    `in_whole` returns the number of an element in the whole by its number in the stream.
    """

    origin: Origin
    in_whole: Callable[[int], int]

    def at(self, index: int, argument: Any) -> Origin:
        """Return the origin for the element with this number in the stream."""
        return self.origin.at(self.in_whole(index), argument)

    def of(self, index: int) -> Origin:
        """Return the origin for the element with this number in the stream."""
        return self.origin.of(self.in_whole(index))


StreamOrigin: TypeAlias = Origin | OriginInWhole

_ORIGIN = "__stoker_origin__"

_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"


def mark_failure(error: Exception, origin: Origin) -> Exception:
    """Add the origin to an error as a note and an attribute, and return the error to raise.

    A user's StopIteration becomes a RuntimeError, as in a generator, and does not end the stream.
    An error that has an origin keeps its origin.
    """
    if isinstance(error, StopIteration):
        cause = error
        error = RuntimeError(f"the function of `{origin.kind}` raised StopIteration")
        error.__cause__ = cause
    if failure_origin(error) is None:
        if advice := tensor_advice(error):
            error.add_note(advice)
        error.add_note(origin.note())
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

    Some frames refer to the error: the reader and its threads would stay until a collection of
    cyclic garbage. Functions of the user keep their frames, for debuggers.
    """
    for entry in _entries(error):
        code = entry.tb_frame.f_code
        # Clearing the frame of a generator would end the generator.
        if is_own_file(code.co_filename) and not code.co_flags & inspect.CO_GENERATOR:
            with suppress(RuntimeError):  # the frame runs
                entry.tb_frame.clear()


def hide_own_frames(error: BaseException) -> None:
    """Remove this package's functions from the traceback of a user function's error.

    The error names the node and its line instead. The debug log has the whole traceback.
    """
    if failure_origin(error) is None and not isinstance(error, UserFunctionError):
        return
    logger.debug("the whole traceback of an error of a user function:", exc_info=error)
    shown: TracebackType | None = None
    for entry in reversed(list(_entries(error))):
        if not is_own_file(entry.tb_frame.f_code.co_filename):
            shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = shown


def _entries(error: BaseException) -> Iterator[TracebackType]:
    entry = error.__traceback__
    while entry is not None:
        yield entry
        entry = entry.tb_next


def is_own_file(name: str) -> bool:
    """Return whether a file name in a traceback is that of a module of this package."""
    return name.startswith(_PACKAGE)


def failure_origin(error: BaseException) -> Origin | None:
    """Return the origin of an error, if a user function raised it."""
    origin = getattr(error, _ORIGIN, None)
    return origin if isinstance(origin, Origin) else None


_VALUES = (int, float, complex, bytes, str, tuple, list, np.ndarray, np.generic)

_INSTEAD = {
    "numpy": "remove the call",
    "set_shape": "remove the call, or declare the shape with `element_spec` of `map`",
    "get_shape": "use numpy.shape(x)",
    "shape": "use numpy.shape(x)",
    "dtype": "use numpy.asarray(x).dtype",
    "as_list": "use list(x.shape)",
    "rank": "use numpy.ndim(x)",
    "ndims": "use numpy.ndim(x)",
}


def tensor_advice(error: BaseException) -> str | None:
    """Return what to use if a function asked a value for an attribute that only tensors have."""
    if not isinstance(error, AttributeError) or not isinstance(error.obj, _VALUES):
        return None
    instead = _INSTEAD.get(error.name or "")
    return instead and f"elements are NumPy and Python values, not tensors: {instead}"
