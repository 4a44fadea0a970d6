"""Advice for functions that use attributes of tensors, which NumPy and Python values lack."""

import numpy as np

_VALUES = (int, float, complex, bytes, str, tuple, list, np.ndarray, np.generic)

_INSTEAD = {
    "numpy": "remove the call",
    "set_shape": "remove the call, or declare the shape with `element_spec` of `map`",
    "get_shape": "use numpy.shape(x)",
    "shape": "use numpy.shape(x)",
    "dtype": "use numpy.asarray(x).dtype",
    "as_list": "use list(x.shape)",
    "rank": "use numpy.ndim(x)",
    "ndims": "use numpy.ndim(x)",
}


def tensor_advice(error: BaseException) -> str | None:
    """Return what to use if a function asked a value for an attribute that only tensors have."""
    if not isinstance(error, AttributeError) or error.name not in _INSTEAD:
        return None
    if not isinstance(error.obj, _VALUES):
        return None
    return f"elements are NumPy and Python values, not tensors: {_INSTEAD[error.name]}"
