"""tf.numpy_function and tf.py_function: calls of Python functions, which need no wrapping here."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.compat.tf.data.generator import cast
from stoker.compat.tf.data.values import as_bytes, as_numpy
from stoker.compat.tf.dtypes import as_dtype
from stoker.errors import InvalidArgumentError


def numpy_function(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: Any,  # noqa: N803 - its name there
    stateful: bool = True,  # noqa: ARG001 - no graph calls `func` once for several elements
    name: str | None = None,  # noqa: ARG001 - nothing is named here
) -> Any:
    """Call a function with NumPy values and check the dtypes of the results.

    As `tf.numpy_function`.

    Args:
        func: called with `inp` as NumPy arrays and scalars; text is bytes.
        inp: the arguments.
        Tout: dtype of the result, or a list of dtypes if there are several results.
        stateful: ignored.
        name: ignored.

    Returns:
        The result; several as a list.

    Raises:
        InvalidArgumentError: if the results have different dtypes or are not as many.

    Example:
        >>> from stoker.compat import tf
        >>> tf.numpy_function(np.square, [np.float32(3)], tf.float32).item()
        9.0
    """
    return _results(func(*map(as_numpy, inp)), Tout, _checked)


def py_function(
    func: Callable[..., Any] | None = None,
    inp: Sequence[Any] | None = None,
    Tout: Any = None,  # noqa: N803
    name: str | None = None,  # noqa: ARG001
) -> Any:
    """Call a function and convert the results; as `tf.py_function`.

    Args:
        func: called with `inp`, unchanged.
        inp: the arguments.
        Tout: dtype or spec of the result, or a list for several results.
        name: ignored.

    Returns:
        The result; several as a list.

    Raises:
        InvalidArgumentError: if a result cannot be converted, or results are not as many.

    Example:
        >>> from stoker.compat import tf
        >>> tf.py_function(lambda x: x + 1, inp=[2], Tout=tf.float32).item()
        3.0
    """
    if func is None:
        raise InvalidArgumentError("`func` must be a function; got None")
    return _results(func(*(inp or ())), Tout, cast)


_Convert = Callable[[Any, np.dtype[Any]], npt.NDArray[Any]]


def _results(results: Any, wanted: Any, convert: _Convert) -> Any:
    """Return the results of a function in the dtypes of `Tout`."""
    if not isinstance(wanted, list | tuple):
        return _converted(results, wanted, convert)
    if not wanted:
        return []
    found = list(results) if isinstance(results, list | tuple) else [results]
    if len(found) != len(wanted):
        raise InvalidArgumentError(
            f"the function returned {len(found)} values, but expects to see {len(wanted)} values, "
            "the length of `Tout`"
        )
    return [_converted(one, dtype, convert) for one, dtype in zip(found, wanted, strict=True)]


def _converted(result: Any, wanted: Any, convert: _Convert) -> Any:
    dtype = as_dtype(getattr(wanted, "dtype", wanted))
    try:
        array = convert(result, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"the function returned {result!r:.200}, which is not {dtype}: {error}"
        ) from error
    return array[()] if array.ndim == 0 else array


def _checked(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    array = np.asarray(as_bytes(np.asarray(value)))
    if array.dtype != dtype:
        raise TypeError(f"it is {array.dtype}, but expects {dtype}")
    return array
