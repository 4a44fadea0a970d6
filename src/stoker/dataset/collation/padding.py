"""Arguments of padding: a shape and a value for each leaf."""

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from stoker.dataset.collation.leaves import leaf_called
from stoker.dataset.collation.vectors import is_vector
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec
from stoker.elements.structure import (
    Container,
    children,
    container_of,
    field_names,
    flatten,
    rebuild,
)
from stoker.errors import DataLossError, InvalidArgumentError, InvalidTypeError

Shape = tuple[int | None, ...]

# Kinds of values that may pad a leaf of a kind: no value is rounded.
_PADS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc"}

_VALUES = (bool, int, float, complex, str, bytes, np.generic, np.ndarray, type(None))

_NOT_SHAPES = (
    "`padded_shapes` must hold shapes such as (128,), (None, 3) or (), nested as the elements are, "
    "with None or -1 for the longest of a batch; got {!r}"
)


class Padding(NamedTuple):
    """Padding of a leaf; ``None`` means the longest lengths, and the dtype's zero or ""."""

    shape: Shape | None = None
    value: Any = None


class Paddings:
    """Padding of each leaf of an element or an element_spec, by the leaf's name.

    None, and a value that is not nested, apply to all leaves below their place.

    Args:
        padded_shapes: the user's argument.
        padding_values: the user's argument.
        like: the element or element_spec.

    Raises:
        InvalidArgumentError: if an argument is not nested as `like` is.
    """

    def __init__(self, padded_shapes: Any, padding_values: Any, like: Any) -> None:
        self._alike: Padding | None = None
        # The most common arguments need no names of leaves, in each batch.
        if padded_shapes is None and _is_scalar(padding_values):
            self._alike = Padding(None, padding_values)
            return
        self._shapes = dict(_spread("padded_shapes", padded_shapes, like, _is_none))
        self._values = dict(_spread("padding_values", padding_values, like, _is_scalar))

    def __getitem__(self, name: str) -> Padding:
        return self._alike or Padding(as_shape(self._shapes[name]), self._values[name])


def check_padding(padded_shapes: Any, padding_values: Any) -> None:
    """Check the arguments as far as possible without an element.

    Raises:
        InvalidArgumentError: if a length is no int of -1 or more, or a value is neither a scalar
            nor None.
    """
    _check_shapes(padded_shapes)
    for value in flatten(padding_values):
        if np.ndim(value) or not isinstance(value, _VALUES):
            raise InvalidArgumentError(
                "`padding_values` must hold numbers, text or None, nested as the elements are; "
                f"got {value!r}"
            )


def _check_shapes(given: Any) -> None:
    container = container_of(type(given))
    if container is Container.LEAF or _are_lengths(given):
        as_shape(given)
    else:
        for _, member in children(given):
            _check_shapes(member)


def _are_lengths(given: Any) -> bool:
    if container_of(type(given)) not in (Container.TUPLE, Container.LIST):
        return False
    return all(member is None or isinstance(member, int | np.integer) for member in given)


def as_shape(given: Any) -> Shape | None:
    """Return the shape of a length, or several; -1 and None mean the longest.

    Raises:
        InvalidTypeError: if a length is no int.
        InvalidArgumentError: if a length is less than -1.
    """
    if given is None:
        return None
    is_one = isinstance(given, int | np.integer) or (
        isinstance(given, np.ndarray) and not given.ndim
    )
    lengths: Iterable[Any] = (given,) if is_one else given
    try:
        shape = tuple(None if n is None or n == -1 else operator.index(n) for n in lengths)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(_NOT_SHAPES.format(given)) from error
    if any(length is not None and length < 0 for length in shape):
        raise InvalidArgumentError(_NOT_SHAPES.format(given))
    return shape


def _is_none(given: Any) -> bool:
    return given is None


def _is_scalar(given: Any) -> bool:
    return container_of(type(given)) is Container.LEAF


def _spread(
    argument: str, given: Any, like: Any, applies_below: Callable[[Any], bool], name: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the name of each leaf of `like`, and the part of `given` that applies to the leaf."""
    container = container_of(type(like))
    if container is Container.LEAF or (container is Container.LIST and is_vector(like)):
        yield name, given
        return
    steps = children(like)
    if applies_below(given):
        members = [given] * len(steps)
    else:
        members = _members_like(argument, given, like, name)
    for (step, child), member in zip(steps, members, strict=True):
        yield from _spread(argument, member, child, applies_below, name + step)


def _members_like(argument: str, given: Any, like: Any, name: str) -> list[Any]:
    """Return the members of `given` in the order of the members of `like`."""
    container, cls = container_of(type(like)), type(like)
    if container is Container.DICT:
        if isinstance(given, dict) and given.keys() == like.keys():
            return [given[key] for key in like]
    elif container in (Container.NAMEDTUPLE, Container.DATACLASS):
        if container_of(type(given)) is container and field_names(type(given)) == field_names(cls):
            return [getattr(given, field) for field in field_names(cls)]
    elif container_of(type(given)) in (Container.TUPLE, Container.LIST) and len(given) == len(like):
        return list(given)
    place = f" at {name}" if name else ""
    raise InvalidArgumentError(
        f"`{argument}` must be nested as the elements are: {given!r} is given{place}, where they "
        f"have a {cls.__name__} of {len(children(like))}; give one "
        f"{'shape' if argument == 'padded_shapes' else 'value'} for each member"
    )


def padded_spec(
    spec: Spec, length: int | None, padded_shapes: Any = None, padding_values: Any = None
) -> Spec:
    """Return the spec of padded batches of elements of `spec`.

    Raises:
        InvalidArgumentError: if the padding does not match the spec.
    """
    given = Paddings(padded_shapes, padding_values, spec)

    def of(part: Any, name: str) -> Any:
        if container_of(type(part)) is not Container.LEAF:
            members = [of(member, name + step) for step, member in children(part)]
            return rebuild(part, members)
        if isinstance(part, RaggedSpec | SparseSpec):
            raise no_array(type(part).__name__.replace("Spec", "Array"), name)
        if not isinstance(part, TensorSpec):
            return part
        shape, value = given[name]
        if value is not None and part.shape:
            padding_value(value, part.dtype, name)
        if shape is None:
            shape = (None,) * len(part.shape)
        check_fits(part.shape, shape, name)
        pairs = zip(part.shape, shape, strict=True)
        known = [mine if fixed is None else fixed for mine, fixed in pairs]
        return TensorSpec((length, *known), part.dtype)

    return of(spec, "")


def check_fits(shape: Shape, padded: Shape, name: str, element: int | None = None) -> None:
    """Check that a leaf fits into a padded shape.

    Raises:
        InvalidArgumentError: if the number of dimensions differs, or a spec has a larger length.
        DataLossError: if an element is larger, as in TensorFlow; the message includes its number.
    """
    is_larger = any(
        mine is not None and most is not None and mine > most
        for mine, most in zip(shape, padded, strict=False)
    )
    if len(shape) == len(padded) and not is_larger:
        return
    where = "" if element is None else f" in element {element} of the batch"
    if len(shape) != len(padded):
        raise InvalidArgumentError(
            f"cannot pad: {leaf_called(name)} has shape {tuple(shape)}{where}, which padded shape "
            f"{padded} cannot hold: give `padded_shapes` one length or None for each of its "
            f"{len(shape)} dimensions"
        )
    # TensorFlow raises DataLossError for an element, and refuses a spec as an argument.
    raise (DataLossError if where else InvalidArgumentError)(
        f"cannot pad: {leaf_called(name)} has shape {tuple(shape)}{where}, larger than its "
        f"padded shape {padded}; cut it in a map before padded_batch, or give larger "
        "`padded_shapes`"
    )


def no_array(kind: str, name: str) -> InvalidTypeError:
    """Return the error of a leaf that cannot be padded."""
    return InvalidTypeError(
        f"cannot pad: {leaf_called(name)} is a {kind}; padded_batch pads arrays: unbatch it, or "
        "make it an array in a map before"
    )


def padding_value(value: Any, dtype: np.dtype[Any], name: str) -> Any:
    """Return the user's value converted to `dtype`.

    Raises:
        InvalidTypeError: if the dtype cannot represent the value.
    """
    item = value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufcSUO":
        item = value.item()
    if dtype.hasobject:
        if item is None or isinstance(item, str | bytes):
            return item
    elif (kind := np.asarray(item).dtype.kind) in _PADS.get(dtype.kind, kind):
        with suppress(ValueError, TypeError, OverflowError):
            return np.array(item, dtype)[()]
    raise InvalidTypeError(
        f"`padding_values` gives {value!r} for {leaf_called(name)}, whose dtype {dtype} does not "
        "hold it; give one of that dtype"
    )
