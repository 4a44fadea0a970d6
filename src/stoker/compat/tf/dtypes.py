"""TensorFlow's dtypes as NumPy's. Text is an object array of bytes, as in TensorFlow."""

from typing import Any

import numpy as np
import numpy.typing as npt

int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
uint64 = np.dtype(np.uint64)
float16 = np.dtype(np.float16)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
complex64 = np.dtype(np.complex64)
complex128 = np.dtype(np.complex128)
boolean = np.dtype(np.bool_)
string = np.dtype(object)


def _bfloat16() -> Any:
    try:
        from ml_dtypes import bfloat16 as scalar
    except ImportError:  # an optional package; only this dtype needs it
        return None
    return np.dtype(scalar)


bfloat16 = _bfloat16()
"""The bfloat16 dtype; ``None`` if the package ml_dtypes is not installed."""


def as_dtype(value: npt.DTypeLike) -> np.dtype[Any]:
    """Return the NumPy dtype of a type, name or dtype; text is ``object``. As `tf.as_dtype`."""
    if value == "string" or value is str or value is bytes:
        return string
    dtype = np.dtype(value)
    return string if dtype.kind in "SU" else dtype
