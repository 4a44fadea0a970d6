"""Elements as tensors: without a copy where only the reader can see the memory."""

import functools
import warnings
from typing import Any

import numpy as np
import torch

from stoker.adapters.ownership import map_leaves
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.structure import map_structure
from stoker.errors import InvalidTypeError


def to_tensors(holder: list[Any], *, pin_memory: bool = False) -> Any:
    """Return an element with tensors in place of its arrays.

    Arrays and NumPy scalars become tensors of their dtype, a `RaggedArray` a nested tensor with the
    layout ``torch.jagged``, a `SparseArray` a sparse COO tensor, arrays of text lists. Tensors that
    functions returned are copied, since user code may still see them. Python numbers, str, bytes
    and None stay, as in PyTorch's `default_convert`.

    Args:
        holder: the element, in a list of one, which is emptied; see `map_leaves`.
        pin_memory: copy arrays to page-locked memory.

    Raises:
        InvalidTypeError: if PyTorch has no tensors of a dtype.
    """
    return map_leaves(holder, functools.partial(_convert, pin_memory))


def _convert(pin_memory: bool, leaf: Any, owned: bool) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.pin_memory() if pin_memory and not leaf.is_pinned() else leaf.clone()
    if isinstance(leaf, np.ndarray):
        # PyTorch has no tensors of text.
        if leaf.dtype.kind in "OSU":
            return leaf.tolist()
        return tensor_of(leaf, owned=owned, pin_memory=pin_memory)
    if isinstance(leaf, np.generic):
        return leaf.item() if leaf.dtype.kind in "SU" else tensor_of(np.array(leaf), owned=True)
    if isinstance(leaf, RaggedArray):
        return _nested(leaf)
    if isinstance(leaf, SparseArray):
        return _sparse(leaf)
    return leaf


def tensor_of(array: Any, *, owned: bool, pin_memory: bool = False) -> torch.Tensor:
    """Return a tensor with the values of an array.

    Args:
        array: a NumPy array.
        owned: share the memory of the array with the tensor.
        pin_memory: copy the array to page-locked memory instead.

    Raises:
        InvalidTypeError: if PyTorch has no tensors of its dtype.
    """
    native = array.dtype.newbyteorder("=")
    carrier, dtype = _dtypes(native)
    if owned and not pin_memory and native == array.dtype and _has_strides_of_torch(array):
        return torch.from_numpy(array.view(carrier)).view(dtype)
    # The copy is made in its final memory; `pin_memory()` of a tensor would copy once more.
    copy = torch.empty(array.shape, dtype=_dtypes(carrier)[1], pin_memory=pin_memory)
    copy.numpy()[...] = array.astype(native, copy=False).view(carrier)
    return copy.view(dtype)


def _has_strides_of_torch(array: Any) -> bool:
    return all(x >= 0 and x % array.itemsize == 0 for x in array.strides)


@functools.cache
def _dtypes(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], torch.dtype]:
    """Return a NumPy dtype that PyTorch can read, and the torch dtype of its values."""
    try:
        return dtype, torch.from_numpy(np.empty(0, dtype)).dtype
    except TypeError:
        found = getattr(torch, dtype.name, None)  # bfloat16 and float8_* of ml_dtypes
        if isinstance(found, torch.dtype) and found.itemsize == dtype.itemsize:
            return np.dtype(f"i{dtype.itemsize}" if dtype.itemsize > 1 else "u1"), found
    raise InvalidTypeError(
        f"PyTorch has no tensors of dtype {dtype}; convert the array in a map, as in "
        "`.astype(np.int64)` for dates, or leave it out"
    )


def _nested(array: RaggedArray) -> torch.Tensor:
    if array.ragged_rank > 1:
        raise InvalidTypeError(
            f"PyTorch has no tensors that are ragged in {array.ragged_rank} dimensions; pad the "
            "inner rows in a map, or use padded_batch"
        )
    values = tensor_of(array.values, owned=False)
    # The layout jagged has the offsets of a RaggedArray, so that no row is copied by itself.
    splits = tensor_of(array.row_splits, owned=False)
    with warnings.catch_warnings():  # PyTorch calls nested tensors a prototype
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor_from_jagged(values, splits)


def _sparse(array: SparseArray) -> torch.Tensor:
    return torch.sparse_coo_tensor(
        tensor_of(array.indices.T, owned=False),
        tensor_of(array.values, owned=False),
        size=tuple(int(length) for length in array.dense_shape),
        check_invariants=False,
    )


def moved(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on `device`; copies from page-locked memory do not block.

    Values of further classes are moved by their method `to`, if any.
    """
    return map_structure(functools.partial(_moved_leaf, device), batch)


def _moved_leaf(device: torch.device, leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.to(device, non_blocking=True)
    return leaf.to(device) if hasattr(leaf, "to") else leaf


def pinned(batch: Any) -> Any:
    """Return a batch with its tensors in page-locked memory.

    Values of further classes are pinned by their method `pin_memory`, if any, as in PyTorch.
    """
    return map_structure(
        lambda leaf: leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf, batch
    )
