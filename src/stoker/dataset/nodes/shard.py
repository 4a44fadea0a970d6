"""shard: keeps every n-th element."""

from typing import Any, ClassVar

from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.streams.deadline import ChunkPace
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import SHARD_HINT, Context, OneInput
from stoker.dataset.tree.splits import IndexSplits
from stoker.dataset.tree.table import Table
from stoker.elements.sizes import element_bytes
from stoker.errors import FailedPreconditionError, InvalidArgumentError

_MAX_SLICED = 16
_MOST_READ = 1 << 14


class Shard(OneInput, frozen=True, eq=False, kw_only=True):
    """The elements at positions `index`, ``index + num_shards``, ...

    `advance` skips the elements of all other shards: a map below does not compute these elements.

    Attributes:
        num_shards: how many parts; SHARD_HINT for a service to fill in, with `index`.
        index: which part.
    """

    kind: ClassVar[str] = "shard"
    forwards_elements: ClassVar[bool] = True
    selects_rows: ClassVar[bool] = True
    uncounted: ClassVar[str] = "SHARD_HINT is for ShardingPolicy.HINT; give `shard` numbers"
    num_shards: int
    index: int

    def cardinality(self) -> int:
        whole = self.input.cardinality()
        if whole < 0 or self.num_shards < 0:
            return whole
        return whole // self.num_shards + (self.index < whole % self.num_shards)

    def table(self) -> Table | None:
        return None if self.num_shards == SHARD_HINT else super().table()

    def input_positions(self) -> InputPositions | None:
        if self.num_shards == SHARD_HINT:
            return None
        return InputPositions(stride=self.num_shards, offset=self.index)

    def open(self, context: Context) -> Stream:
        if self.num_shards == SHARD_HINT:
            raise FailedPreconditionError(
                f"shard(SHARD_HINT, ...) ({self.site}) can only be used in tf.data service with "
                "`tf.data.experimental.service.ShardingPolicy.HINT` processing mode. Read the "
                "dataset with processing_mode=ShardingPolicy.HINT, or give `shard` numbers"
            )
        stream = context.open(self.input)
        if context.as_rows:
            return _ShardStream(self, stream, flows=True, cheap=True, slices_all=True)
        cheap = not self.input.inputs and isinstance(self.input.splits(), IndexSplits)
        flows = context.splits is None and context.shard is None
        return _ShardStream(self, stream, flows=flows, cheap=cheap and flows)


class WorkerShard(Shard, frozen=True, eq=False, kw_only=True):
    """The shard of a worker, of files or where the user put it; an empty shard is an error.

    The node is not part of the wire form: the worker inserts the node.
    """

    def open(self, context: Context) -> Stream:
        stream = _NonEmptyInput(context.open(self.input), self)
        flows = context.splits is None and context.shard is None
        return _ShardStream(self, stream, flows=flows, cheap=False)


class _NonEmptyInput(OneInputStream):
    """Raises at the end if the input has elements, but fewer than there are shards."""

    def __init__(self, stream: Stream, node: WorkerShard) -> None:
        super().__init__(stream)
        self._node = node
        self._passed = 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        try:
            chunk = self._input.next_chunk(max_elements, max_bytes, lazy)
        except Exception:
            self._passed += 1
            raise
        self._passed += len(chunk)
        if not chunk:
            self._check()
        return chunk

    def advance(self, n: int) -> int:
        skipped = self._input.advance(n)
        self._passed += skipped
        return skipped

    def _check(self) -> None:
        passed, self._passed = self._passed, 0
        if 0 < passed < self._node.num_shards:
            raise InvalidArgumentError(too_few_files(passed, self._node.num_shards))


def too_few_files(files: int, shards: int) -> str:
    """Return the message that a dataset has fewer files than workers; as in tf.data service."""
    return (
        f"Could not apply FILE based sharding: the dataset only has {files} file(s), which is not "
        f"enough for the required {shards} shards/workers. Write the data to more files, use fewer "
        "workers, or shard by elements (ShardingPolicy.DATA)"
    )


class _ShardStream(OneInputStream):
    """Skips the elements of other shards when an element is read.

    Args:
        node: the shard.
        stream: the input.
        flows: reading the input never waits for splits.
        cheap: the input computes nothing.
        slices_all: the elements of all shards are read, however many shards there are.
    """

    def __init__(
        self, node: Shard, stream: Stream, *, flows: bool, cheap: bool, slices_all: bool = False
    ) -> None:
        super().__init__(stream)
        self._step = node.num_shards
        self._to_skip = node.index
        self._flows = flows
        self._cheap = cheap
        # Up to a number of shards, reading all elements of a range is cheaper than skipping some.
        self._slices = slices_all or self._step <= _MAX_SLICED
        self._pace = ChunkPace()
        self._failure: Exception | None = None

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if (lazy or self._cheap) and self._slices and self._failure is None:
            return self._read_slice(max_elements, max_bytes)
        if lazy or max_elements == 1 or not self._flows:
            return self._read_one()
        chunk: list[Any] = []
        self._pace.begin()
        while len(chunk) < max_elements and max_bytes > 0:
            try:
                read = self._read_one()
            except Exception as error:
                if not chunk:
                    raise
                self._failure = error
                break
            chunk += read
            if not read or not self._pace.allows_read():
                break
            max_bytes -= element_bytes(read[0])
        return chunk

    def _read_one(self) -> list[Any]:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._to_skip:
            self._input.advance(self._to_skip)
        self._to_skip = self._step - 1  # an error takes a position too
        return self._input.next_chunk(1, 1)

    def _read_slice(self, max_elements: int, max_bytes: int) -> list[Any]:
        """Return every `num_shards`-th element of a lazy chunk of the input."""
        if self._to_skip:
            self._input.advance(self._to_skip)
        self._to_skip = self._step - 1  # an error takes a position too
        most = min(max_elements * self._step, _MOST_READ)
        # No function is called for the dropped elements, so dropping costs less than skipping.
        chunk = self._input.next_chunk(most, max_bytes, True)
        self._to_skip = -len(chunk) % self._step
        return chunk[:: self._step]

    def advance(self, n: int) -> int:
        if not n:
            return 0
        if self._failure is not None:
            self._failure = None
            return 1 + self.advance(n - 1)
        whole = self._to_skip + 1 + (n - 1) * self._step
        skipped = self._input.advance(whole)
        if skipped == whole:
            self._to_skip = self._step - 1
            return n
        reached = skipped - self._to_skip
        self._to_skip = 0
        return max(0, -(-reached // self._step))
