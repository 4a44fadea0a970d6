"""ignore_errors: drops positions that fail."""

from typing import Any, ClassVar

from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.errors import CancelledError, FailedPreconditionError, UnimplementedError


class IgnoreErrors(OneInput, frozen=True, eq=False, kw_only=True):
    """Drops and counts errors that belong to a position of the input.

    Errors after which nothing can be read are raised: an error that the input raises again without
    advancing, and stoker's CancelledError, FailedPreconditionError and UnimplementedError.

    Attributes:
        log_warning: log each error.
        max_errors: the most errors dropped in an epoch; the next error is raised.
    """

    kind: ClassVar[str] = "ignore_errors"
    keeps_endless: ClassVar[bool] = True
    forwards_elements: ClassVar[bool] = True
    log_warning: bool = False
    max_errors: int | None = None

    def open(self, context: Context) -> Stream:
        return _IgnoreErrorsStream(self, context, context.open(self.input))


class _IgnoreErrorsStream(OneInputStream):
    def __init__(self, node: IgnoreErrors, context: Context, stream: Stream) -> None:
        super().__init__(stream)
        self._node = node
        self._statistics = context.statistics
        self._ignored = 0
        self._last: Exception | None = None
        self._closed = False

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        while not self._closed:
            try:
                chunk = self._input.next_chunk(max_elements, max_bytes, lazy)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self._ignore(error)
            else:
                self._last = None
                return chunk
        return []

    def close(self) -> None:
        self._closed = True
        self._input.close()

    def _ignore(self, error: Exception) -> None:
        """Count the error, or raise an error that must not be ignored."""
        last, self._last = self._last, error
        if not _is_of_a_position(error, last):
            raise error
        limit = self._node.max_errors
        if limit is not None and self._ignored >= limit:
            raise error
        self._ignored += 1
        self._statistics.add("errors_ignored", 1)
        # The traceback would grow without limit if a function raises the same object each time.
        error.__traceback__ = None
        if self._node.log_warning:
            origin = failure_origin(error)
            where = ""
            if origin is not None:
                what = "" if origin.index is None else f", element {origin.index}"
                where = f" in `{origin.kind}` ({origin.site}{what})"
            import logging

            logging.getLogger("stoker.dataset").warning(
                "ignored an error%s: %s: %s (%d in this epoch)",
                where,
                type(error).__name__,
                error,
                self._ignored,
            )


def _is_of_a_position(error: Exception, last: Exception | None) -> bool:
    """Return whether the next read continues after the error."""
    if failure_origin(error) is not None:  # raised by a user function
        return True
    # A stream that has failed permanently raises the same object again.
    permanent = CancelledError | FailedPreconditionError | UnimplementedError
    return error is not last and not isinstance(error, permanent)
