"""The argument `filenames` of the methods that read files."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from stoker.dataset import nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.call_site import call_site
from stoker.dataset.tree.node import Node
from stoker.elements.spec import Spec, TensorSpec, UnknownSpec
from stoker.errors import InvalidArgumentError, InvalidTypeError

Filenames = str | bytes | os.PathLike[Any] | Iterable[Any] | Fluent
"""A path, iterables of paths nested to any depth, or a dataset of paths."""


def paths_node(filenames: Filenames) -> Node:
    """Return the node that yields the paths of `filenames`.

    Raises:
        InvalidTypeError: if the argument is neither paths nor a dataset whose elements can be
            paths.
        InvalidArgumentError: if a path is empty.
    """
    if isinstance(filenames, Fluent):
        _check_spec(filenames.element_spec)
        return filenames.node
    paths = [os.fsdecode(path) for path in _flat(filenames, filenames)]
    if not all(paths):
        raise InvalidArgumentError(f"`filenames` must not contain an empty path; got {filenames!r}")
    value = np.empty(len(paths), object)
    value[:] = paths
    return nodes.TensorSlices(value=Pickled.of(value), count=len(paths), site=call_site())


def _flat(value: Any, filenames: Any) -> Iterator[Any]:
    """Yield the paths of nested iterables in order."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, str | bytes | os.PathLike):
        yield value
        return
    # A set has no order, and the keys of a dict are hardly meant.
    if not isinstance(value, Iterable) or isinstance(value, Mapping | set | frozenset | Fluent):
        raise InvalidTypeError(
            "`filenames` must be a path, a list of paths or a dataset of paths; got "
            f"{filenames!r:.200}"
        )
    for item in value:
        yield from _flat(item, filenames)


def _check_spec(spec: Spec) -> None:
    """Refuse datasets that are known to yield something else than paths."""
    if isinstance(spec, UnknownSpec):
        return
    text = isinstance(spec, TensorSpec) and spec.dtype.kind in "OSU"
    if not text or spec.shape:
        raise InvalidTypeError(
            "`filenames` must be a path, a list of paths or a dataset of paths, each element one "
            f"str, bytes or path; got a dataset of {spec!r}"
        )
