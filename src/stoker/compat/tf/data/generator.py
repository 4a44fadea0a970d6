"""Conversion of a generator's values, as in `tf.data.Dataset.from_generator`."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.compat.tf.data.values import as_bytes
from stoker.compat.tf.dtypes import as_dtype, string
from stoker.compat.tf.specs import TensorShape
from stoker.elements.spec import Spec, TensorSpec, UnknownSpec
from stoker.elements.structure import (
    Container,
    children,
    container_of,
    is_leaf,
    map_structure,
    members_of,
    rebuild,
)
from stoker.errors import InvalidArgumentError, InvalidTypeError


def check_no_list(argument: str, declared: Any) -> None:
    """Raise InvalidTypeError if a declaration contains a list, which TensorFlow refuses."""
    container = container_of(type(declared))
    if container is Container.LIST:
        raise InvalidTypeError(
            f"`{argument}` must be nested in tuples and dicts; got the list {declared!r}: give the "
            f"tuple {tuple(declared)!r} for elements of several components"
        )
    if container is not Container.LEAF:
        for member in members_of(declared):
            check_no_list(argument, member)


def signature_of(output_types: Any, output_shapes: Any) -> Spec:
    """Return the spec that the two deprecated arguments of from_generator describe.

    Args:
        output_types: a dtype, or a nest of dtypes without lists.
        output_shapes: the shapes in the same nest; ``None``, for all or a leaf: unknown.

    Raises:
        InvalidTypeError: if a leaf is no dtype or shape, or the nests differ.
    """
    if not is_leaf(output_types):
        types, shapes = members_of(output_types), _members_like(output_types, output_shapes)
        if output_shapes is None:
            shapes = [None] * len(types)
        elif shapes is None:
            raise InvalidTypeError(
                f"`output_shapes` must be nested as `output_types` {output_types!r}; "
                f"got {output_shapes!r}"
            )
        return rebuild(output_types, list(map(signature_of, types, shapes)))
    if output_shapes is None:
        return _AnyShape(as_dtype(output_types))
    return TensorSpec(TensorShape(output_shapes), as_dtype(output_types))


def _members_like(nest: Any, value: Any) -> list[Any] | None:
    """Return the members of a value in the order of a nest; ``None`` if it is nested otherwise."""
    container = container_of(type(nest))
    if container is Container.DICT:
        # The order of keys may differ: TensorFlow sorts them.
        alike = isinstance(value, dict) and value.keys() == nest.keys()
        return [value[key] for key in nest] if alike else None
    alike = container_of(type(value)) is container and len(children(value)) == len(children(nest))
    return members_of(value) if alike else None


class _AnyShape:
    """A leaf with a known dtype and unknown shape."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype


def declared(signature: Spec) -> Spec | None:
    """Return the signature as an element_spec, ``None`` if a shape is unknown."""
    return map_structure(
        lambda leaf: UnknownSpec() if isinstance(leaf, _AnyShape) else leaf, signature
    )


class Conforming:
    """A generator function whose values are converted to the dtypes of a signature; picklable.

    As with tf.data, lists become arrays and text bytes, NumPy's numbers are cast to any dtype, and
    Python's if only precision is lost.
    """

    def __init__(self, generator: Callable[..., Iterable[Any]], signature: Spec) -> None:
        self._generator = generator
        self._signature = signature

    def __call__(self, *args: Any) -> Iterator[Any]:
        # Not a generator, which would end at its first error: in TensorFlow, a value that does not
        # fit is an error at its position, and the next values follow.
        return map(partial(_conform, self._signature), self._generator(*args))


def _conform(signature: Spec, value: Any) -> Any:
    if is_leaf(signature):
        return _leaf(signature, value)
    members = _members_like(signature, value)
    if members is None:
        raise InvalidArgumentError(
            f"`generator` yielded {value!r}, which is not structured as its signature {signature!r}"
        )
    return rebuild(signature, list(map(_conform, members_of(signature), members)))


def _leaf(signature: Any, value: Any) -> Any:
    if not isinstance(signature, TensorSpec | _AnyShape):
        return as_bytes(value)
    try:
        array = cast(value, signature.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        kind = "text" if signature.dtype == string else signature.dtype
        raise InvalidArgumentError(
            f"`generator` yielded {value!r}, which is not {kind}: {error}"
        ) from error
    if isinstance(signature, TensorSpec) and not _fits(array.shape, signature.shape):
        raise InvalidArgumentError(
            f"`generator` yielded an element of shape {array.shape} where an element of shape "
            f"{signature.shape} was expected; None in a shape matches any size"
        )
    return array[()] if array.ndim == 0 else array


# The kinds a Python number can be converted to; bfloat16 is of kind V.
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}


def cast(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a value as an array of `dtype`, converted as TensorFlow converts to a tensor.

    Raises:
        TypeError: if the kinds differ; Python's numbers must not lose more than precision.
        ValueError: if the value is not numbers or text of a common shape.
        OverflowError: if a number does not fit.
    """
    array = np.asarray(value)
    if dtype == string:
        if array.size and array.dtype.kind not in "USO":
            raise TypeError(f"it is {array.dtype}")
        array = np.asarray(as_bytes(np.array(value, dtype=object)))
        for item in array.flat:
            if not isinstance(item, bytes):
                raise TypeError(f"it contains {item!r}")
        return array
    if array.dtype.kind in "USO":
        raise TypeError("it is not numeric")
    # NumPy's arrays have a dtype that the user chose, so TensorFlow casts them to any dtype.
    pythons = not isinstance(value, np.ndarray | np.generic)
    if pythons and array.size and _KINDS.get(array.dtype.kind, 9) > _KINDS.get(dtype.kind, 9):
        raise TypeError(f"it is {array.dtype}")
    return np.asarray(value, dtype=dtype)


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        wanted is None or length == wanted for length, wanted in zip(shape, expected, strict=True)
    )
