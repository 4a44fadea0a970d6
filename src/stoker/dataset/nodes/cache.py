"""cache: stores the first complete epoch in memory."""

import threading
from collections.abc import Iterable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from stoker.dataset.pickling.fingerprint import uses_seed
from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import Context, Node, OneInput
from stoker.dataset.tree.splits import SplitReader
from stoker.elements.frozen import fresh, frozen
from stoker.elements.sizes import element_bytes


class Cache(OneInput, frozen=True, eq=False, kw_only=True):
    """Stores the elements of the first epoch that was read, not skipped, to its end.

    Later epochs of the same node in the same process read the stored elements, whose arrays are
    read-only. If a service assigns splits, the stored elements belong to that `SplitReader`:
    another reader has different elements. If nodes below draw by `Options.seed`, only the elements
    of that seed are read.
    """

    kind: ClassVar[str] = "cache"
    one_to_one: ClassVar[bool] = True

    def open(self, context: Context) -> Stream:
        store = _store_of(self, context.splits)
        seed = context.seed if context.seed_given and uses_seed(self.input) else None
        if store.elements is not None and store.seed == seed:
            return _CachedStream(store.elements)
        # The stored elements must not depend on which epoch was the first to be read completely: a
        # stream is a function of (tree, seed, epoch, splits).
        return _CachingStream(replace(context, epoch=(0,)).open(self.input), store, seed)


def is_filled(node: Cache) -> bool:
    """Return whether the elements of a cache are kept in this process."""
    return _store_of(node, None).elements is not None


def forget_draws(nodes: Iterable[Node]) -> None:
    """Drop the stored elements of the caches below which nodes draw: the drawn seeds change."""
    with _lock:
        for node in nodes:
            if isinstance(node, Cache) and uses_seed(node.input):
                _whole.pop(node, None)


class _Store:
    """The elements of a complete epoch; None until an epoch is complete.

    Attributes:
        elements: the elements.
        seed: the `Options.seed` of the draws below; ``None``: the elements do not depend on a seed.
    """

    def __init__(self) -> None:
        self.elements: list[Any] | None = None
        self.seed: int | None = None


_Stores = WeakKeyDictionary[Node, _Store]
_whole: _Stores = WeakKeyDictionary()
_by_splits: WeakKeyDictionary[SplitReader, _Stores] = WeakKeyDictionary()
_lock = threading.RLock()


def _store_of(node: Node, splits: SplitReader | None) -> _Store:
    with _lock:
        stores = _whole
        if splits is not None:
            stores = _by_splits.setdefault(splits, WeakKeyDictionary())
        return stores.setdefault(node, _Store())


class _CachingStream(OneInputStream):
    """Yields and stores the input; the epoch that ends first fills the cache."""

    def __init__(self, stream: Stream, store: _Store, seed: int | None) -> None:
        super().__init__(stream)
        self._store = store
        self._seed = seed
        self._record: list[Any] | None = []

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        try:
            chunk = self._input.next_chunk(max_elements, max_bytes, lazy)
        except Exception as error:
            # The error is stored, so that each epoch raises the error at the same position.
            if self._record is not None:
                self._record.append(Failure(error))
            raise
        if not chunk:
            self._complete()
            return []
        # Later epochs yield the same arrays, so that no user may write to these arrays.
        chunk = [frozen(element) for element in chunk]
        if self._record is not None:
            self._record.extend(chunk)
        return fresh(chunk)

    def advance(self, n: int) -> int:
        if n:
            # Skipped elements are not computed, so this epoch cannot fill the cache.
            self._record = None
        return self._input.advance(n)

    def close(self) -> None:
        self._record = None
        self._input.close()

    def _complete(self) -> None:
        if self._record is not None:
            with _lock:
                # A concurrent epoch may have filled the cache first; its elements are kept.
                if self._store.elements is None or self._store.seed != self._seed:
                    self._store.elements, self._store.seed = self._record, self._seed
            self._record = None


class _CachedStream(Stream):
    """Yields the elements of a complete cache."""

    def __init__(self, elements: list[Any]) -> None:
        self._elements = elements
        self._at = 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._at >= len(self._elements):
            return []
        first = self._elements[self._at]
        if isinstance(first, Failure):
            self._at += 1
            raise first.error.with_traceback(first.traceback)  # the same error in each epoch
        count = min(max_elements, max(1, max_bytes // element_bytes(first)))
        chunk = self._elements[self._at : self._at + count]
        if Failure in set(map(type, chunk)):
            chunk = chunk[: next(i for i, e in enumerate(chunk) if isinstance(e, Failure))]
        self._at += len(chunk)
        return fresh(chunk)

    def advance(self, n: int) -> int:
        skipped = min(n, len(self._elements) - self._at)
        self._at += skipped
        return skipped

    def close(self) -> None:
        self._elements = []
