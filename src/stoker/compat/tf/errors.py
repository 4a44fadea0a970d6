"""TensorFlow's exceptions: stoker's own, which have their names.

Those that nothing in stoker raises exist so that ``except`` clauses go on working.
"""

from typing import Any

from stoker import errors
from stoker.compat.tf.missing import missing
from stoker.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
    UnimplementedError,
)
from stoker.errors import StokerError as OpError

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OpError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
]


class AbortedError(OpError):
    """Raised by nothing in stoker."""


class CancelledError(OpError):
    """Raised by nothing in stoker."""


class DeadlineExceededError(OpError, TimeoutError):
    """Raised by nothing in stoker."""


class InternalError(OpError):
    """Raised by nothing in stoker."""


class OutOfRangeError(OpError, IndexError):
    """Raised by nothing in stoker: the end of a dataset is the end of the iteration."""


class ResourceExhaustedError(OpError):
    """Raised by nothing in stoker."""


class UnauthenticatedError(OpError):
    """Raised by nothing in stoker."""


class UnknownError(OpError):
    """Raised by nothing in stoker."""


DataLossError: type[OpError] = getattr(errors, "DataLossError", OpError)


def __getattr__(name: str) -> Any:
    raise missing("tf.errors", name)
