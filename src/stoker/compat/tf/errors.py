"""TensorFlow's exceptions; stoker's have the same names.

Classes that nothing in stoker raises exist so that ``except`` clauses go on working.
"""

from typing import Any

from stoker.compat.tf.missing import missing
from stoker.errors import (
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
    UnimplementedError,
)
from stoker.errors import StokerError as OpError

# stoker raises these same classes: ``except tf.errors.NotFoundError`` catches stoker's errors.
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
    """Present for ``except`` clauses; stoker never raises it."""


class DeadlineExceededError(OpError, TimeoutError):
    """Present for ``except`` clauses; stoker never raises it."""


class InternalError(OpError):
    """Present for ``except`` clauses; stoker never raises it."""


class OutOfRangeError(OpError, IndexError):
    """A position is not in the dataset; the end of a dataset ends the iteration instead."""


class ResourceExhaustedError(OpError):
    """Present for ``except`` clauses; stoker never raises it."""


class UnauthenticatedError(OpError):
    """Present for ``except`` clauses; stoker never raises it."""


class UnknownError(OpError):
    """Present for ``except`` clauses; stoker never raises it."""


def __getattr__(name: str) -> Any:
    raise missing("tf.errors", name)
