"""Dtypes as builtin values, as an encoded element_spec has them."""

from typing import Any

import numpy as np

from stoker.errors import InvalidArgumentError


def dtype_to_wire(dtype: np.dtype[Any]) -> Any:
    """Return `dtype` as builtin values; structured ones with offsets; also those of ml_dtypes."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": dtype_to_wire(base), "shape": list(shape)}
    if dtype.names is not None:
        assert dtype.fields is not None
        fields = [(dtype.fields[name][0], dtype.fields[name][1]) for name in dtype.names]
        return {
            "names": list(dtype.names),
            "formats": [dtype_to_wire(field) for field, _ in fields],
            "offsets": [offset for _, offset in fields],
            "itemsize": dtype.itemsize,
        }
    if dtype.type.__module__ == "numpy":
        return dtype.str
    return f"{dtype.type.__module__}.{dtype.name}"


def dtype_from_wire(wire: Any) -> np.dtype[Any]:
    """Return the dtype encoded by `dtype_to_wire`.

    Raises:
        InvalidArgumentError: if `wire` is no encoded dtype, or ml_dtypes is needed and missing.
    """
    try:
        return _dtype_from_wire(wire)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidArgumentError(f"{wire!r} is not a dtype: {error}") from error


def _dtype_from_wire(wire: Any) -> np.dtype[Any]:
    if isinstance(wire, dict):
        if "base" in wire:
            return np.dtype((_dtype_from_wire(wire["base"]), tuple(wire["shape"])))
        formats = [_dtype_from_wire(field) for field in wire["formats"]]
        return np.dtype({**wire, "formats": formats})  # type: ignore[call-overload,no-any-return]
    if not isinstance(wire, str):
        raise TypeError("expected text")
    package, _, name = wire.rpartition(".")
    if package != "ml_dtypes":  # the one package outside NumPy that may be named
        return np.dtype(wire)
    try:
        import ml_dtypes
    except ImportError as error:
        raise ValueError(f"install ml_dtypes to read {name}") from error
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype
