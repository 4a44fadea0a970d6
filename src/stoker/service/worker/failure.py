"""An exception on a worker as the trainer shall see it."""

import traceback
from pathlib import Path

import stoker
from stoker.dataset.execute import failure_origin
from stoker.errors import ErrorRecord, StokerError, to_record

_PACKAGE = str(Path(stoker.__file__).parent)


def describe(error: BaseException, worker: str, element: int) -> ErrorRecord:
    """The record of `error`, raised at position `element` of a task's stream.

    What a user's function raised becomes a `UserFunctionError` with the traceback from the user's own
    first frame on; an error of stoker's keeps its class; anything else carries its traceback.
    """
    origin = failure_origin(error)
    if origin is None and isinstance(error, StokerError):
        return to_record(error)
    kind = type(error).__name__
    text = _traceback(error)
    if origin is None:
        message = f"worker {worker} failed at element {element}: {kind}: {error}"
        return ErrorRecord("UserFunctionError", message, worker, exception=kind, remote_traceback=text)
    return ErrorRecord(
        "UserFunctionError",
        f"{kind}: {error} (raised by the function of `{origin.kind}`, {origin.site}, on worker "
        f"{worker}, at element {element} of its stream)",
        worker=worker,
        node=origin.kind,
        site=origin.site,
        element=element,
        exception=kind,
        remote_traceback=text,
    )


def _traceback(error: BaseException) -> str:
    """The formatted traceback, without stoker's own frames at its head."""
    frames = traceback.extract_tb(error.__traceback__)
    own = 0
    while own < len(frames) and frames[own].filename.startswith(_PACKAGE):
        own += 1
    shown = frames[own:] if own < len(frames) else frames
    head = "Traceback (most recent call last):\n" if shown else ""
    return (
        head
        + "".join(traceback.format_list(shown))
        + "".join(traceback.format_exception_only(error))
    )
