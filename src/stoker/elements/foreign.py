"""Arrays of other libraries, such as PyTorch's tensors and PIL's images, as NumPy arrays."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from stoker.errors import InvalidArgumentError

_LIBRARIES = frozenset({"torch", "jax", "jaxlib", "PIL"})


def _is_foreign_array(kind: type) -> bool:
    """Return whether `kind` is a class of arrays of PyTorch, JAX or PIL, or derived from one."""
    is_array = hasattr(kind, "__array__") or hasattr(kind, "__array_interface__")
    return is_array and not _LIBRARIES.isdisjoint(_libraries_of(kind))


# By assignment: mypy considers `type` unhashable where lru_cache decorates.
is_foreign_array: Callable[[type], bool] = functools.lru_cache(maxsize=4096)(_is_foreign_array)


def _libraries_of(kind: type) -> set[str]:
    return {base.__module__.partition(".")[0] for base in kind.__mro__}


def array_of(value: Any, path: str) -> Any:
    """Return the array of another library as a NumPy array, without a copy where it can be read.

    Args:
        value: has ``__array__`` or ``__array_interface__``.
        path: place of the value in its element, for errors; "" for the element.

    Raises:
        InvalidArgumentError: if a tensor of PyTorch has no NumPy form.
    """
    if "torch" not in _libraries_of(type(value)):
        return np.asarray(value)
    if remedy := _remedy(value):
        called = f"the leaf {path}" if path.startswith(("[", ".")) else path or "the element"
        raise InvalidArgumentError(
            f"{called} is a torch.Tensor {remedy[0]}, which has no NumPy form; return {remedy[1]}"
        )
    name = str(value.dtype).removeprefix("torch.")
    if name not in _EXTENDED:
        return value.resolve_conj().resolve_neg().numpy()
    dtype = np.dtype(getattr(_ml_dtypes(), name))
    import torch  # imported already by the program that made the tensor

    carrier = torch.int16 if dtype.itemsize > 1 else torch.uint8
    return value.contiguous().view(carrier).numpy().view(dtype)


# Dtypes that NumPy has with ml_dtypes.
_EXTENDED = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}
)


def _remedy(tensor: Any) -> tuple[str, str] | None:
    """Return a property that prevents the conversion, and the expression to use; None if none."""
    if tensor.requires_grad:
        return "with requires_grad=True", "tensor.detach()"
    if tensor.is_nested:
        return "of nested tensors", "tensor.unbind(), or a stoker.RaggedArray"
    if str(tensor.layout) != "torch.strided":
        return f"with layout {tensor.layout}", "tensor.to_dense(), or a stoker.SparseArray"
    if tensor.is_quantized:
        return "with quantized values", "tensor.dequantize()"
    if tensor.device.type != "cpu":
        return f"on device {tensor.device}", "tensor.cpu()"
    if str(tensor.dtype).removeprefix("torch.") in _EXTENDED and _ml_dtypes() is None:
        return f"of dtype {tensor.dtype}", "tensor.float(), or install ml_dtypes"
    return None


def _ml_dtypes() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes
