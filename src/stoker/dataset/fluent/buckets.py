"""The functions that bucket_by_sequence_length passes to group_by_window."""

import operator
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from stoker.dataset.collation.padding import Paddings
from stoker.dataset.collation.vectors import is_vector
from stoker.elements.spec import Spec, TensorSpec
from stoker.elements.structure import Container, children, container_of, rebuild
from stoker.errors import InvalidArgumentError, InvalidTypeError


@dataclass(frozen=True)
class Buckets:
    """Key, window size and batches of the buckets.

    Attributes:
        length_of: the user's function, called with the element, or with the members of a tuple.
        boundaries: the lengths at which the next bucket begins, ascending.
        batch_sizes: the batch size of each bucket; ``len(boundaries) + 1`` sizes.
        padded_shapes: argument of `padded_batch`, as given by the user.
        padding_values: argument of `padded_batch`, as given by the user.
        to_boundary: pad dimensions of unknown size to the upper boundary minus 1.
        padded: use `padded_batch`; False uses `batch`.
        drop_remainder: drop batches with fewer elements.
        site: the user's line, for errors of the batches, which are built when read.
    """

    length_of: Callable[..., Any]
    boundaries: Sequence[int]
    batch_sizes: Sequence[int]
    padded_shapes: Any
    padding_values: Any
    to_boundary: bool
    padded: bool
    drop_remainder: bool
    site: str

    def key(self, *members: Any) -> int:
        """Return the number of the bucket of an element."""
        length = self.length_of(*members)
        try:
            return bisect_right(self.boundaries, operator.index(length))
        except TypeError as error:
            raise InvalidTypeError(
                f"`element_length_func` must return an int; it returned {length!r}"
            ) from error

    def size(self, bucket: int) -> int:
        """Return the batch size of a bucket."""
        return self.batch_sizes[bucket]

    def batches(self, bucket: int, group: Any) -> Any:
        """Return a dataset of the batches of a group, a Dataset of the elements of a bucket."""
        size = self.batch_sizes[bucket]
        if self.padded:
            shapes = self.padded_shapes
            if self.to_boundary:
                shapes = self._shapes_to_boundary(bucket, group)
            batches = group.padded_batch(size, shapes, self.padding_values, self.drop_remainder)
        else:
            batches = group.batch(size, self.drop_remainder)
        # Batches are built by the thread that reads, where no frame is the user's line.
        return batches._derive(replace(batches.node, site=self.site))

    def _shapes_to_boundary(self, bucket: int, group: Any) -> Any:
        if bucket == len(self.boundaries):
            raise InvalidArgumentError(
                "with `pad_to_bucket_boundary` elements must be shorter than the last of "
                f"`bucket_boundaries`, {self.boundaries}; filter out longer ones or add a "
                "boundary"
            )
        length = self.boundaries[bucket] - 1
        (first,) = group.take(1)
        given = Paddings(self.padded_shapes, None, first)
        return _shapes(first, group.element_spec, length, given, "")


def _shapes(value: Any, spec: Spec, length: int, given: Paddings, name: str) -> Any:
    """Return the padded shapes of `value`, with `length` for dimensions of unknown size."""
    container = container_of(type(value))
    if container is Container.LEAF or (container is Container.LIST and is_vector(value)):
        shape = given[name].shape
        if shape is None and isinstance(spec, TensorSpec):
            shape = spec.shape
        if shape is None:  # only the rank is known: the first dimension is the sequence
            rest = np.ndim(value) - 1
            return () if rest < 0 else (length, *[None] * rest)
        return tuple(length if known is None else known for known in shape)
    known = dict(children(spec)) if container_of(type(spec)) is container else {}
    members = [
        _shapes(member, known.get(step), length, given, name + step)
        for step, member in children(value)
    ]
    return rebuild(value, members)
