"""Checks of the arguments of the fluent API; errors name the argument, its range and value."""

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.node import AUTOTUNE
from stoker.elements.spec import Spec, is_spec
from stoker.errors import InvalidArgumentError, InvalidTypeError

_Checked = TypeVar("_Checked")

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_WEIGHTS = "`weights` must be {} numbers of 0 or more, one for each dataset; got {!r}"


def integer(name: str, value: Any, *, minimum: int = _INT64_MIN, what: str = "an int") -> int:
    """Return the value as an int of 64 bits.

    Args:
        name: of the argument.
        value: any value; an object with ``__index__`` is accepted, a bool is not.
        minimum: the smallest valid int.
        what: the valid range, in words.

    Raises:
        InvalidTypeError: if the value is not an int.
        InvalidArgumentError: if the value is not an int of 64 bits, or less than `minimum`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    # A bool is an int for Python, but `take(True)` is a mistake of its caller.
    if number is None or isinstance(value, bool):
        raise InvalidTypeError(f"`{name}` must be {what}; got {value!r}")
    if not minimum <= number <= _INT64_MAX:
        raise InvalidArgumentError(f"`{name}` must be {what}; got {value!r}")
    return number


def count(name: str, value: Any, meaning: str) -> int:
    """Return a count of 0 or more, or -1, whose `meaning` the error states."""
    return integer(name, value, minimum=-1, what=f"an int of 0 or more, or -1 for {meaning}")


def count_or_all(name: str, value: Any, meaning: str) -> int:
    """Return a count of 0 or more, or -1 for any negative count, whose `meaning` the error states.

    As in tf.data, where `take`, `skip` and `repeat` compare with 0 only.
    """
    return max(-1, integer(name, value, what=f"an int of 0 or more, or negative for {meaning}"))


def size(name: str, value: Any) -> int:
    """Return a size of at least 1."""
    return integer(name, value, minimum=1, what="an int of at least 1")


def size_or_autotune(name: str, value: Any) -> int:
    """Return a size of at least 1, or AUTOTUNE."""
    what = "an int of at least 1, or stoker.AUTOTUNE"
    number = integer(name, value, minimum=AUTOTUNE, what=what)
    if number == 0:
        raise InvalidArgumentError(f"`{name}` must be {what}; got 0")
    return number


def buffer(name: str, value: Any) -> int:
    """Return the size of a buffer, 0 or more, or AUTOTUNE, also for ``None``."""
    if value is None:
        return AUTOTUNE
    what = "an int of 0 or more, stoker.AUTOTUNE or None"
    return integer(name, value, minimum=AUTOTUNE, what=what)


def seed(value: Any) -> int | None:
    """Return a seed, an int of 64 bits, or None."""
    return None if value is None else integer("seed", value, what="an int of 64 bits or None")


def optional(check: Callable[[str, Any], _Checked], name: str, value: Any) -> _Checked | None:
    """Return the result of `check`, a function of this module; None for ``None``."""
    return None if value is None else check(name, value)


def flag(name: str, value: Any, default: bool | None = None) -> bool:
    """Return a bool; for ``None`` the default, if there is a default."""
    if value is None and default is not None:
        return default
    if not isinstance(value, bool):
        raise InvalidTypeError(f"`{name}` must be True or False; got {value!r}")
    return value


def integers(name: str, values: Any, *, minimum: int = _INT64_MIN, what: str) -> list[int]:
    """Return a list of ints of 64 bits.

    Raises:
        InvalidTypeError: if the value is not iterable, or an item is not an int.
        InvalidArgumentError: if an item is less than `minimum`.
    """
    try:
        items = list(values)
    except TypeError as error:
        raise InvalidTypeError(f"`{name}` must be {what}; got {values!r}") from error
    return [integer(name, item, minimum=minimum, what=what) for item in items]


def function(name: str, value: Any) -> Pickled:
    """Return a user function as `Pickled`."""
    if not callable(value):
        raise InvalidTypeError(
            f"`{name}` must be a function; got a {type(value).__qualname__}: {value!r}"
        )
    return Pickled.of(value)


def spec(name: str, value: Spec | None) -> Pickled | None:
    """Return a declared element_spec as `Pickled`, which may refer to the user's classes."""
    if value is None:
        return None
    if not is_spec(value):
        raise InvalidTypeError(
            f"`{name}` must be a TensorSpec, RaggedSpec, SparseSpec or UnknownSpec, or tuples and "
            f"dicts of them; got {value!r}"
        )
    return Pickled.of(value)


def weights(weights: Any, count: int) -> "npt.NDArray[np.float64]":
    """Return the weights of a draw, as an array of shape ``(count,)``.

    Raises:
        InvalidTypeError: if the weights are not numbers.
        InvalidArgumentError: if the weights are not `count` numbers of 0 or more, or all are 0.
    """
    try:
        # `reshape` accepts a column too, such as an element of a dataset of weights.
        values = np.asarray(weights, np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(_WEIGHTS.format(count, weights)) from error
    if len(values) != count or not (np.isfinite(values).all() and (values >= 0).all()):
        raise InvalidArgumentError(_WEIGHTS.format(count, weights))
    if not values.any():
        raise InvalidArgumentError(f"one of `weights` must be more than 0; got {weights!r}")
    return values
