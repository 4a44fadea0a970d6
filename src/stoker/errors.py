"""Exceptions that stoker raises, and their encoded form.

    StokerError
    ├── InvalidArgumentError (ValueError)
    │   ├── InvalidTypeError (TypeError)       an argument of the wrong type
    │   ├── InvalidConfigError                 a configuration, also a FailedPreconditionError
    │   └── WireError                          bytes that are not a message of stoker
    ├── DataLossError (ValueError)             data is lost: a corrupt file, a lost worker
    ├── NotFoundError (LookupError)
    ├── AlreadyExistsError
    ├── CancelledError                     an operator cancelled the job
    ├── FailedPreconditionError (RuntimeError)
    ├── UnavailableError (ConnectionError)
    ├── UnimplementedError (NotImplementedError)
    ├── PermissionDeniedError (PermissionError)
    ├── UserFunctionError                      a user function raised on a worker
    └── PoisonedElementError                   workers died while computing this element

The names are TensorFlow's (`tf.errors`); each is also the builtin a Python user would catch.
"""

from typing import Any, ClassVar

import msgspec


class _Message:
    """The text of an error; empty on its class.

    PyTorch's DataLoader constructs an error of a worker process anew: by position, or with the
    keyword `message` if the class has a true attribute of that name, such as a property.
    """

    def __get__(self, error: "StokerError | None", owner: type["StokerError"]) -> str:
        return "" if error is None or not error.args else str(error.args[0])


class StokerError(Exception):
    """Base class of all exceptions that stoker raises.

    Attributes:
        message: the text, without notes and without a worker's traceback; as `tf.errors.OpError`.
        op: None, as in `tf.errors.OpError` where no operation of a graph failed.
        node_def: None, likewise.
    """

    op: ClassVar[None] = None
    node_def: ClassVar[None] = None
    # PyTorch's loader passes the keyword `message` if the class has a true attribute of that name;
    # this descriptor is false on the class. (docs/decisions/094)
    message = _Message()


class InvalidArgumentError(StokerError, ValueError):
    """An argument is invalid, independent of the state of the service."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument, or what a user function returned, has the wrong type or structure."""


class WireError(InvalidArgumentError):
    """Received bytes are not a message of this protocol."""


class DataLossError(StokerError, ValueError):
    """Data is lost: a file is corrupt or truncated, or elements were lost with a worker."""


class NotFoundError(StokerError, LookupError):
    """A dataset, job, client, file, transport or protocol does not exist."""


class AlreadyExistsError(StokerError):
    """Something with this name exists and differs."""


class CancelledError(StokerError):
    """The job was cancelled by an operator (`stoker jobs cancel`)."""


class FailedPreconditionError(StokerError, RuntimeError):
    """The operation is not possible in the current state."""


class InvalidConfigError(InvalidArgumentError, FailedPreconditionError):
    """The configuration of a server is invalid.

    A ValueError, and a RuntimeError as of the servers of tf.data service.
    """


class UnavailableError(StokerError, ConnectionError):
    """A dispatcher or worker cannot be reached."""


class UnimplementedError(StokerError, NotImplementedError):
    """The operation does not exist for this dataset, or not in this version."""


class PermissionDeniedError(StokerError, PermissionError):
    """The peer is not permitted to do this."""


class _CallError(StokerError):
    """A call of a user function on a worker did not return."""

    def __init__(
        self,
        message: str,
        *,
        worker: str = "",
        node: str = "",
        site: str = "",
        element: int | None = None,
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.node = node
        self.site = site
        self.element = element

    # Exceptions are pickled as a call with their `args`, which lack the keywords.
    def __reduce__(self) -> tuple[object, ...]:
        return from_record, (to_record(self),)


class UserFunctionError(_CallError):
    """A user function raised on a worker.

    Attributes:
        worker: address of the worker.
        node: kind of the dataset node that called the function, such as ``"map"``.
        site: file and line of the call that built the node, such as ``"train.py:12"``.
        element: number of the element in its task's stream, from 0, or ``None`` if unknown.
        exception: class name of the exception, such as ``"ValueError"``.
        remote_traceback: the traceback on the worker, as text.
    """

    def __init__(
        self,
        message: str,
        *,
        worker: str = "",
        node: str = "",
        site: str = "",
        element: int | None = None,
        exception: str = "",
        remote_traceback: str = "",
    ) -> None:
        super().__init__(message, worker=worker, node=node, site=site, element=element)
        self.exception = exception
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        text = str(self.args[0])
        if self.remote_traceback:
            text += f"\n\nTraceback on the worker:\n{self.remote_traceback.rstrip()}"
        return text


class PoisonedElementError(_CallError):
    """Worker processes died while computing this element, which is skipped.

    Attributes:
        worker: address of the worker that skipped the element.
        node: as of `UserFunctionError`.
        site: as of `UserFunctionError`.
        element: as of `UserFunctionError`.
    """


class ErrorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Encoded exception: the class is named by its name in this module, never imported."""

    code: str
    message: str
    worker: str = ""
    node: str = ""
    site: str = ""
    element: int | None = None
    exception: str = ""
    remote_traceback: str = ""


_PLACE = ("worker", "node", "site", "element")
_DETAILS: dict[str, tuple[str, ...]] = {
    "UserFunctionError": (*_PLACE, "exception", "remote_traceback"),
    "PoisonedElementError": _PLACE,
}
"""Attributes of the exceptions that have any."""


def to_record(error: BaseException) -> ErrorRecord:
    """Return the record of `error`; foreign exceptions become a `StokerError` with their class.

    The record can be encoded for any text.
    """
    for code, names in _DETAILS.items():
        if isinstance(error, _BY_NAME[code]):
            details = {name: _encodable(getattr(error, name)) for name in names}
            return ErrorRecord(code, _encodable(str(error.args[0])), **details)
    if isinstance(error, StokerError):
        return ErrorRecord(type(error).__name__, _encodable(str(error)))
    return ErrorRecord("StokerError", _encodable(f"{type(error).__name__}: {error}"))


def _encodable(detail: Any) -> Any:
    """Escape the parts of a text that are not UTF-8, such as parts of a file name."""
    if not isinstance(detail, str):
        return detail
    # A file name may have bytes that are not UTF-8, and messages are UTF-8.
    return detail.encode(errors="backslashreplace").decode()


def from_record(record: ErrorRecord) -> StokerError:
    """Return the exception of `record`; an unknown code becomes a plain `StokerError`."""
    details = {name: getattr(record, name) for name in _DETAILS.get(record.code, ())}
    # A peer of another version may name an exception that does not exist here.
    return _BY_NAME.get(record.code, StokerError)(record.message, **details)


# A peer names the class of an error: only the exceptions of this module can be made.
_BY_NAME: dict[str, type[StokerError]] = {
    name: cls
    for name, cls in globals().items()
    if isinstance(cls, type) and issubclass(cls, StokerError) and cls is not _CallError
}
