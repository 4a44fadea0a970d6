"""list_files: the paths of files that match patterns, as text or as bytes."""

import os
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from stoker.dataset.drawn_seeds import NEW_SALT, Salt
from stoker.dataset.formats.storage import list_paths
from stoker.dataset.random import rng
from stoker.dataset.streams.source import ListedStream
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node, OneInput
from stoker.dataset.tree.splits import ListedSplits
from stoker.elements.spec import Spec, TensorSpec
from stoker.errors import NotFoundError


class ListFiles(Node, frozen=True, eq=False, kw_only=True):
    """The paths that match any of the patterns, listed by the process that reads the files."""

    kind: ClassVar[str] = "list_files"
    patterns: tuple[str, ...]
    shuffle: bool
    seed: int | None = None
    salt: Salt = NEW_SALT

    def element_spec(self) -> Spec:
        return TensorSpec((), np.dtype(object))

    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def splits(self) -> ListedSplits:
        return ListedSplits()

    def list_splits(self, context: Context) -> list[Any]:
        """Return the paths, sorted, then shuffled if `shuffle`.

        Raises:
            NotFoundError: if no file matches.
        """
        return self._shuffled(self.list_in_order(context), context)

    def list_in_order(self, context: Context) -> list[Any]:
        """Return the paths, sorted.

        Raises:
            NotFoundError: if no file matches.
        """
        paths = sorted(path for pattern in self.patterns for path in list_paths(pattern))
        if not paths:
            raise NotFoundError(
                f"no files match {', '.join(map(repr, self.patterns))}; check the pattern and that "
                "the files are there on the machine that reads them"
            )
        return paths

    def open(self, context: Context) -> Stream:
        return ListedStream(context, self, lambda: self._list(context))

    def _list(self, context: Context) -> Iterable[Any]:
        if context.splits is not None or (reader := context.part_reader(self)) is None:
            return self.list_splits(context)
        # A static shard gets its files in sorted order, the same in each epoch, and shuffles here.
        paths = reader.open(context.numbers[self])
        return self._shuffled(list(paths), context) if self.shuffle else paths

    def _shuffled(self, paths: list[Any], context: Context) -> list[Any]:
        if not self.shuffle:
            return paths
        order = rng(context, self, self.seed).permutation(len(paths))
        return [paths[i] for i in order]


class EncodedNames(OneInput, frozen=True, eq=False, kw_only=True):
    """The names of files that the input yields as str, as bytes.

    The node is no `map` with a function, so that the names can be listed on any worker.
    """

    kind: ClassVar[str] = "encoded_names"
    one_to_one: ClassVar[bool] = True

    def element_spec(self) -> Spec:
        return TensorSpec((), np.dtype(object))

    def open(self, context: Context) -> Stream:
        return _EncodedStream(context.open(self.input))


class _EncodedStream(OneInputStream):
    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        return list(map(os.fsencode, self._input.next_chunk(max_elements, max_bytes, lazy)))

    def advance(self, n: int) -> int:
        return self._input.advance(n)
