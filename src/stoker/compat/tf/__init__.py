"""TensorFlow's names for its input pipelines, over stoker: ``from stoker.compat import tf``.

Covered are `tf.data`, `tf.data.experimental`, `tf.data.experimental.service`, `tf.errors`, the
writer of TFRecord files, the specs and the dtypes. TensorFlow itself is neither imported nor
needed, and there are no tensors: elements are NumPy and Python values. docs/compat.md lists what
is covered and what differs.
"""

from typing import Any

from stoker.compat.tf import data, errors, io, random
from stoker.compat.tf.dtypes import (
    as_dtype,
    bfloat16,
    boolean,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from stoker.compat.tf.missing import missing
from stoker.compat.tf.script_ops import numpy_function, py_function
from stoker.compat.tf.specs import RaggedTensorSpec, SparseTensorSpec, TensorShape, TensorSpec

bool = boolean  # noqa: A001 - its name there
half = float16
double = float64

__all__ = [
    "RaggedTensorSpec",
    "SparseTensorSpec",
    "TensorShape",
    "TensorSpec",
    "as_dtype",
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "data",
    "double",
    "errors",
    "float16",
    "float32",
    "float64",
    "half",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "numpy_function",
    "py_function",
    "random",
    "string",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


def __getattr__(name: str) -> Any:
    raise missing("tf", name)
