"""Encoding of NumPy dtypes; only known forms are decoded, and never object dtypes.

A simple dtype is its `dtype.str` ("<f4", "<M8[25s]"), a dtype of ml_dtypes its name
("ml_dtypes.bfloat16"), a structured dtype its fields with their offsets. Sizes and byte order are
exact; metadata is dropped, since NumPy's comparison ignores metadata.
"""

import importlib
import re
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stoker.errors import FailedPreconditionError, InvalidArgumentError, WireError

Dtype: TypeAlias = np.dtype[Any]

_SIMPLE = re.compile(
    r"\|b1|[<>|][iu][1248]|[<>]f(?:2|4|8|12|16)|[<>]c(?:8|16|24|32)"
    r"|[<>]U\d{1,9}|\|[SV]\d{1,9}|[<>][mM]8(?:\[\d{0,10}[A-Za-z\u03bc]{1,2}\])?"
)
_ML_DTYPE = re.compile(r"ml_dtypes\.([a-z0-9_]{1,40})")
_MAX_ITEM_BYTES = 1 << 31


class Field(msgspec.Struct, frozen=True, array_like=True):
    """A field of a structured dtype; `shape` is empty unless the field is a subarray."""

    name: str
    dtype: "WireDtype"
    offset: int
    shape: tuple[int, ...] = ()
    title: str | None = None


class Structured(msgspec.Struct, frozen=True, array_like=True):
    """A structured dtype, including its padding."""

    fields: tuple[Field, ...]
    itemsize: int
    aligned: bool = False


WireDtype: TypeAlias = str | Structured


def to_wire(dtype: Dtype) -> WireDtype:
    """Return the encoded form of `dtype`.

    Raises:
        InvalidArgumentError: if values of this dtype cannot be serialized.
    """
    if dtype.names is not None and dtype.fields is not None:
        fields = tuple(_field_to_wire(name, dtype.fields[name]) for name in dtype.names)
        return Structured(fields, dtype.itemsize, dtype.isalignedstruct)
    return _simple_to_wire(dtype)


# Structured dtypes are not cached: dtypes that differ only in alignment compare equal.
@lru_cache(maxsize=1024)
def _simple_to_wire(dtype: Dtype) -> WireDtype:
    if dtype.type.__module__ == "ml_dtypes":
        return f"ml_dtypes.{dtype.name}"
    if _SIMPLE.fullmatch(dtype.str) and not dtype.hasobject and dtype.subdtype is None:
        return dtype.str
    raise InvalidArgumentError(
        f"dtype {dtype!r} cannot be serialized; convert to a number, datetime64, bytes or str "
        f"dtype, or to an object array of str, bytes and None"
    )


def _field_to_wire(name: str, field: Any) -> Field:
    dtype, offset, title = (*field, None)[:3]  # NumPy has a title only where there is one
    if title is not None and not isinstance(title, str):
        raise InvalidArgumentError(
            f"field {name!r} has the title {title!r}; only str titles can be serialized"
        )
    return Field(name, to_wire(dtype.base), offset, dtype.shape, title)


@lru_cache(maxsize=1024)
def from_wire(dtype: WireDtype) -> Dtype:
    """Return the dtype of an encoded form, which is untrusted.

    Raises:
        WireError: if the text is not the encoded form of a dtype.
        FailedPreconditionError: if ml_dtypes is missing, or too old.
    """
    try:
        found = _parse(dtype, depth=0)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, WireError):
            raise
        raise WireError(f"not a dtype: {dtype!r:.200}: {error}") from error
    # An array of an object dtype would use bytes of the peer as pointers.
    if found.hasobject or found.itemsize > _MAX_ITEM_BYTES:
        raise WireError(f"a dtype that is not allowed: {dtype!r:.200}")
    return found


def _parse(dtype: WireDtype, depth: int) -> Dtype:
    if isinstance(dtype, Structured):
        if depth > 16:
            raise WireError("a structured dtype nested more than 16 deep")
        return _parse_structured(dtype, depth)
    if _SIMPLE.fullmatch(dtype):
        return np.dtype(dtype)
    if name := _ML_DTYPE.fullmatch(dtype):
        return _ml_dtype(name[1])
    raise WireError(f"not a dtype: {dtype!r:.200}")


def _parse_structured(dtype: Structured, depth: int) -> Dtype:
    formats: list[Any] = []
    for field in dtype.fields:
        inner = _parse(field.dtype, depth + 1)
        if len(field.shape) > 32 or any(size < 0 for size in field.shape):
            raise WireError(f"field {field.name!r:.100} has the shape {field.shape!r:.200}")
        formats.append((inner, field.shape) if field.shape else inner)
    if not 0 <= dtype.itemsize <= _MAX_ITEM_BYTES:
        raise WireError(f"a structured dtype of {dtype.itemsize} bytes")
    description: Any = {
        "names": [field.name for field in dtype.fields],
        "formats": formats,
        "offsets": [field.offset for field in dtype.fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.aligned,
    }
    if any(field.title is not None for field in dtype.fields):
        description["titles"] = [field.title for field in dtype.fields]
    parsed: Dtype = np.dtype(description)
    return parsed


def _ml_dtype(name: str) -> Dtype:
    try:
        module = importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise FailedPreconditionError(
            f"an element holds {name} values, for which ml_dtypes is not installed here; "
            f"run `pip install ml_dtypes`"
        ) from error
    scalar = getattr(module, name, None)
    if not (isinstance(scalar, type) and issubclass(scalar, np.generic)):
        raise FailedPreconditionError(
            f"an element holds {name} values, which the installed ml_dtypes does not have; "
            f"upgrade it"
        )
    return np.dtype(scalar)
