"""Records of exceptions on a worker, for the trainer."""

import traceback
from pathlib import Path

import msgspec

from stoker.dataset.streams.failures import failure_origin
from stoker.errors import ErrorRecord, PoisonedElementError, StokerError, to_record

_PACKAGE = str(Path(__file__).parents[2])

LONGEST_TEXT = 1 << 20
"""Most characters of a message or traceback; a longer one keeps its beginning and its end."""


def describe(error: BaseException, worker: str, element: int) -> ErrorRecord:
    """Return the record of `error`, raised at position `element` of a task's stream.

    An exception of a user's function becomes a `UserFunctionError` with the traceback from the
    user's first frame on. A `PoisonedElementError` gets its place; another error of stoker keeps
    its class; others carry their whole traceback.
    The record can be encoded for any exception.
    """
    origin = failure_origin(error)
    if isinstance(error, PoisonedElementError) and origin is not None:
        return ErrorRecord(
            "PoisonedElementError",
            f"{_clean(error.message)} (`{origin.kind}`, {origin.site}, on worker {worker}, at "
            f"element {element} of its stream)",
            worker=worker,
            node=origin.kind,
            site=origin.site,
            element=element,
        )
    if origin is None and isinstance(error, StokerError):
        record = to_record(error)
        return msgspec.structs.replace(record, message=_clean(record.message))
    kind = type(error).__name__
    what = f"{kind}: {_message(error)}"
    text = _clean(_traceback(error))
    if origin is None:
        message = f"worker {worker} failed at element {element}: {what}"
        return ErrorRecord(
            "UserFunctionError",
            message,
            worker,
            element=element,
            exception=kind,
            remote_traceback=text,
        )
    return ErrorRecord(
        "UserFunctionError",
        f"{what} (raised by the function of `{origin.kind}`, {origin.site}, on worker {worker}, at "
        f"element {element} of its stream)",
        worker=worker,
        node=origin.kind,
        site=origin.site,
        element=element,
        exception=kind,
        remote_traceback=text,
    )


def _message(error: BaseException) -> str:
    try:
        return _clean(str(error))
    except Exception as failure:  # noqa: BLE001 - a user's __str__ may raise anything
        return f"<its __str__ raised {type(failure).__name__}>"


def _clean(text: str) -> str:
    """Return `text` as valid UTF-8 of bounded length."""
    if len(text) > LONGEST_TEXT:
        half = LONGEST_TEXT // 2
        text = f"{text[:half]} ... ({len(text) - 2 * half} characters left out) ... {text[-half:]}"
    return text.encode(errors="backslashreplace").decode()


def _traceback(error: BaseException) -> str:
    """Format the traceback and its causes, without the leading frames of stoker."""
    formatted = traceback.TracebackException.from_exception(error)
    waiting = [formatted]
    while waiting:
        one = waiting.pop()
        _drop_own_head(one.stack)
        waiting += [cause for cause in (one.__cause__, one.__context__) if cause is not None]
    return "".join(formatted.format())


def _drop_own_head(stack: traceback.StackSummary) -> None:
    own = 0
    while own < len(stack) and stack[own].filename.startswith(_PACKAGE):
        own += 1
    if own < len(stack):
        del stack[:own]
