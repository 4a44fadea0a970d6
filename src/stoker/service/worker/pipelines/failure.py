"""Records of exceptions on a worker, for the trainer."""

import logging
import traceback

import msgspec

from stoker.dataset.streams.failures import Origin, failure_origin, is_own_file
from stoker.errors import ErrorRecord, PoisonedElementError, StokerError, to_record

logger = logging.getLogger("stoker.worker")

LONGEST_TEXT = 1 << 20
"""Most characters of a message or traceback; a longer one keeps its beginning and its end."""


def describe(error: BaseException, worker: str, element: int) -> ErrorRecord:
    """Return the record of `error`, raised at position `element` of a task's stream.

    An exception of a user's function becomes a `UserFunctionError` whose traceback has the frames
    outside this package; the debug log has all. A `PoisonedElementError` gets its place; another
    error of stoker keeps its class; others carry their whole traceback.
    The record can be encoded for any exception.
    """
    origin = failure_origin(error)
    if isinstance(error, PoisonedElementError) and origin is not None:
        return ErrorRecord(
            "PoisonedElementError",
            f"{_clean(error.message)} (`{origin.kind}`, {origin.site}, on worker {worker})",
            worker=worker,
            node=origin.kind,
            site=origin.site,
            element=element,
        )
    if origin is None and isinstance(error, StokerError):
        # Its class is known to the trainer, which raises it again.
        record = to_record(error)
        return msgspec.structs.replace(record, message=_clean(record.message))
    kind = type(error).__name__
    what = f"{kind}: {_message(error)}"
    text = _clean(_traceback(error, origin))
    if origin is None:
        node = site = ""
        message = f"worker {worker} failed at element {element}: {what}"
    else:
        node, site = origin.kind, origin.site
        position = origin.position() or f", at element {element} of its stream"
        message = (
            f"{what} (raised by the function of `{node}`, {site}{position}, on worker {worker})"
        )
    return ErrorRecord(
        "UserFunctionError",
        message,
        worker,
        node=node,
        site=site,
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


def _traceback(error: BaseException, origin: Origin | None) -> str:
    """Format the traceback and its causes, without frames of stoker, whose note is in the message.

    An error without origin may be of stoker itself: only the leading frames are left out.
    """
    formatted = traceback.TracebackException.from_exception(error)
    if origin is not None:
        logger.debug("the whole traceback of an error of a user function:", exc_info=error)
        notes = formatted.__notes__ or []
        formatted.__notes__ = [note for note in notes if note != origin.note()]
    waiting = [formatted]
    while waiting:
        one = waiting.pop()
        _drop_own(one.stack, only_leading=origin is None)
        waiting += [cause for cause in (one.__cause__, one.__context__) if cause is not None]
    return "".join(formatted.format())


def _drop_own(stack: traceback.StackSummary, *, only_leading: bool) -> None:
    """Remove the frames of stoker, unless all are."""
    others = [i for i, frame in enumerate(stack) if not is_own_file(frame.filename)]
    if others:
        stack[:] = stack[others[0] :] if only_leading else [stack[i] for i in others]
