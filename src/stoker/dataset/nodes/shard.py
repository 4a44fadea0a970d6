"""shard: keeps every n-th element."""

import time
from typing import Any, ClassVar

from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import SHARD_HINT, Context, OneInput
from stoker.dataset.tree.splits import IndexSplits
from stoker.elements.sizes import element_bytes
from stoker.errors import FailedPreconditionError

# Up to this number of shards, reading all elements of a range is cheaper than skipping some.
_MAX_SLICED = 16
_MOST_READ = 1 << 14

# A chunk is returned when reading it has taken this long.
_CHUNK_SECONDS = 0.5e-3

# If the input answers faster than this, it is read again for the same chunk.
_PROMPT_SECONDS = 20e-6


class Shard(OneInput, frozen=True, eq=False, kw_only=True):
    """The elements at positions `index`, ``index + num_shards``, ...

    The others are skipped by `advance`: a map before does not compute them.

    Attributes:
        num_shards: how many parts; SHARD_HINT, with an `index` of SHARD_HINT, for a service to
            fill in.
        index: which part.
    """

    kind: ClassVar[str] = "shard"
    forwards_elements: ClassVar[bool] = True
    num_shards: int
    index: int

    def cardinality(self) -> int:
        whole = self.input.cardinality()
        if whole < 0 or self.num_shards < 0:
            return whole
        return whole // self.num_shards + (self.index < whole % self.num_shards)

    def open(self, context: Context) -> Stream:
        if self.num_shards == SHARD_HINT:
            raise FailedPreconditionError(
                f"shard(SHARD_HINT, SHARD_HINT) ({self.site}) is replaced only if the dataset is "
                "read with processing_mode=ShardingPolicy.HINT; use that, or give numbers"
            )
        stream = self.input.open(context)
        cheap = not self.input.inputs and isinstance(self.input.splits(), IndexSplits)
        if cheap and context.splits is None and self.num_shards <= _MAX_SLICED:
            return _SlicedStream(self, stream)
        return _ShardStream(self, stream, context.splits is None)


class _ShardStream(OneInputStream):
    """Skips the elements of other shards when an element is read.

    Args:
        node: the shard.
        stream: the input.
        flows: reading the input never waits for splits.
    """

    def __init__(self, node: Shard, stream: Stream, flows: bool) -> None:
        super().__init__(stream)
        self._step = node.num_shards
        self._to_skip = node.index
        self._flows = flows
        self._prompt = False
        self._failure: Exception | None = None

    def _next(self) -> Any:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._to_skip:
            skipped, self._to_skip = self._to_skip, 0
            self._input.advance(skipped)
        try:
            element = self._input.next()
        except StopIteration:
            raise
        except Exception:
            self._to_skip = self._step - 1
            raise
        self._to_skip = self._step - 1
        return element

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy and self._step <= _MAX_SLICED and self._failure is None:
            return self._lazy_chunk(max_elements, max_bytes)
        begun = time.perf_counter()
        try:
            chunk = [self._next()]
        except StopIteration:
            return []
        if lazy or max_elements == 1:
            return chunk
        left = max_bytes - element_bytes(chunk[0])
        # As in map, the duration of the last read predicts that of the next.
        while self._flows and self._prompt and len(chunk) < max_elements and left > 0:
            now = time.perf_counter()
            if now - begun > _CHUNK_SECONDS:
                break
            try:
                chunk.append(self._next())
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001 - the next call raises it
                self._failure = error
                break
            left -= element_bytes(chunk[-1])
            self._prompt = time.perf_counter() - now < _PROMPT_SECONDS
        if len(chunk) == 1:
            self._prompt = time.perf_counter() - begun < _PROMPT_SECONDS
        return chunk

    def _lazy_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        """Return every `num_shards`-th element of a lazy chunk of the input.

        No function was called for the others, so dropping them costs less than skipping them.
        """
        if self._to_skip:
            skipped, self._to_skip = self._to_skip, 0
            self._input.advance(skipped)
        try:
            chunk = self._input.next_chunk(max_elements * self._step, max_bytes, True)
        except Exception:
            self._to_skip = self._step - 1
            raise
        self._to_skip = -len(chunk) % self._step
        return chunk[:: self._step]

    def advance(self, n: int) -> int:
        if not n:
            return 0
        first = 0
        if self._failure is not None:
            self._failure = None
            first = 1
        wanted = n - first
        if not wanted:
            return first
        whole = self._to_skip + 1 + (wanted - 1) * self._step
        skipped = self._input.advance(whole)
        if skipped == whole:
            self._to_skip = self._step - 1
            return n
        reached = skipped - self._to_skip
        self._to_skip = 0
        return first + (0 if reached <= 0 else -(-reached // self._step))


class _SlicedStream(_ShardStream):
    """Reads chunks of a cheap source and keeps the elements of the shard."""

    def __init__(self, node: Shard, stream: Stream) -> None:
        super().__init__(node, stream, True)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        step = self._step
        while read := self._input.next_chunk(
            min((max_elements - 1) * step + 1 + self._to_skip, _MOST_READ), max_bytes
        ):
            chunk = read[self._to_skip :: step]
            self._to_skip = (self._to_skip - len(read)) % step
            if chunk:
                return chunk
        return []
