"""shuffle: draws elements from a buffer at random."""

from typing import Any, ClassVar

from msgspec.structs import replace

from stoker.dataset.drawn_seeds import NEW_SALT, Salt
from stoker.dataset.random import rng
from stoker.dataset.streams.draws import Draws, Replay
from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.rows.row_elements import RowElements
from stoker.dataset.streams.rows.shuffled_rows import ShuffledRows
from stoker.dataset.streams.stream import NO_LIMIT, OneInputStream, Stream
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Context, OneInput
from stoker.elements.sizes import element_bytes
from stoker.errors import FailedPreconditionError

# Elements that are read at a time: a zip reads as many of an endless input before a shorter one.
_MOST_READ = 1 << 14


class Shuffle(OneInput, frozen=True, eq=False, kw_only=True):
    """Draws each element at random from a buffer of the next `buffer_size` elements.

    The order is a function of (seed, node, epoch) only, as in tf.data: a random slot of the full
    buffer is yielded and refilled; when the input has ended, the rest is permuted.

    Attributes:
        buffer_size: elements in the buffer; UNKNOWN_CARDINALITY for all.
        seed: the user's; None for that of the context.
        reshuffle_each_iteration: False to draw the same order in every epoch.
    """

    kind: ClassVar[str] = "shuffle"
    forwards_elements: ClassVar[bool] = True
    selects_rows: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    uncounted: ClassVar[str] = (
        "it shuffles other elements than numbers and arrays in memory, and what `map` makes of "
        "these; shuffle numbers and read elements in `map`, or apply it after `distribute`"
    )
    buffer_size: int
    seed: int | None = None
    salt: Salt = NEW_SALT
    reshuffle_each_iteration: bool = True

    def open(self, context: Context) -> Stream:
        generator = rng(context, self, self.seed, per_epoch=self.reshuffle_each_iteration)
        known = self.input.cardinality() if context.splits is None else None
        if known is not None and known < 0 and known != INFINITE_CARDINALITY:
            known = None
        size = NO_LIMIT if self.buffer_size == UNKNOWN_CARDINALITY else self.buffer_size
        draws = Draws(generator, size)
        table = None if context.as_rows else self.input.table()
        if context.as_rows or table is not None:
            rows = replace(context, as_rows=True).open(self.input)
            shuffled = ShuffledRows(rows, size, draws, known)
            return shuffled if table is None else RowElements(shuffled, table)
        return _ShuffleStream(context.open(self.input), size, draws, known)


class _ShuffleStream(OneInputStream):
    """The buffer and the draws; after the end of the input, the permuted rest.

    Args:
        stream: the input.
        size: elements in the buffer.
        draws: draws slots of the buffer.
        cardinality: cardinality of the input; None if unknown.
    """

    def __init__(self, stream: Stream, size: int, draws: Draws, cardinality: int | None) -> None:
        super().__init__(stream)
        self._size = size
        self._draws = draws
        self._cardinality = cardinality
        self._read = 0
        self._buffer: list[Any] = []
        self._rest: list[Any] | None = None
        self._failures = 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if len(self._buffer) < self._size and self._rest is None:
            self._fill()
        if self._failures:
            max_elements = 1  # any element of the buffer may be a failure
        if self._rest is None:
            try:
                chunk = self._input.next_chunk(
                    min(max_elements, self._draws.ready()), max_bytes, lazy
                )
            except Exception as error:  # noqa: BLE001 - raised where it is drawn
                return [self._swap(self._buffer_failure(error))]
            if len(chunk) == 1:
                return [self._swap(chunk[0])]
            if chunk:
                return self._swap_all(chunk)
            self._permute_rest()
        return self._take_rest(max_elements, max_bytes)

    def advance(self, n: int) -> int:
        if self._rest is None and self._cardinality is None:
            # The elements that stay buffered are random, so none can be dropped before the input
            # is known to have more elements.
            return super().advance(n)
        skipped = self._replay(n) if self._rest is None else 0
        if self._rest and skipped < n:
            dropped = self._rest[-(n - skipped) :]
            del self._rest[-(n - skipped) :]
            self._failures -= sum(isinstance(item, Failure) for item in dropped)
            skipped += len(dropped)
        return skipped

    def close(self) -> None:
        self._buffer, self._rest = [], []
        self._input.close()

    def _fill(self) -> None:
        buffer = self._buffer
        while len(buffer) < self._size:
            try:
                most = min(self._size - len(buffer), _MOST_READ)
                chunk = self._input.next_chunk(most, NO_LIMIT)
            except Exception as error:  # noqa: BLE001 - raised where it is drawn
                chunk = [self._buffer_failure(error)]
            if not chunk:
                self._permute_rest()
                return
            buffer.extend(chunk)
            self._read += len(chunk)

    def _swap(self, item: Any) -> Any:
        [slot] = self._draws.take_list(1)
        self._read += 1
        drawn, self._buffer[slot] = self._buffer[slot], item
        return self._raise_or_return(drawn)

    def _swap_all(self, chunk: list[Any]) -> list[Any]:
        """Draw once per element of `chunk`; the buffer must not contain failures."""
        buffer, drawn = self._buffer, []
        for slot, item in zip(self._draws.take_list(len(chunk)), chunk, strict=True):
            drawn.append(buffer[slot])
            buffer[slot] = item
        self._read += len(chunk)
        return drawn

    def _permute_rest(self) -> None:
        order = self._draws.permutation(len(self._buffer))
        self._rest = [self._buffer[slot] for slot in order[::-1].tolist()]
        self._buffer = []

    def _take_rest(self, max_elements: int, max_bytes: int) -> list[Any]:
        rest = self._rest
        if not rest:
            return []
        count = min(max_elements, len(rest), max(1, max_bytes // element_bytes(rest[-1])))
        if self._failures:
            return [self._raise_or_return(rest.pop())]
        taken = rest[-count:]
        del rest[-count:]
        taken.reverse()
        return taken

    def _buffer_failure(self, error: Exception) -> Failure:
        self._failures += 1
        return Failure(error)

    def _raise_or_return(self, item: Any) -> Any:
        if type(item) is Failure:
            self._failures -= 1
            raise item.error
        return item

    def _replay(self, n: int) -> int:
        """Skip up to `n` positions by replaying the draws; compute elements that stay buffered."""
        assert self._cardinality is not None
        buffered = len(self._buffer)
        replay = self._draws.replay(buffered, self._read, self._cardinality, n)
        slots = self._buffer + [None] * (len(replay.origins) - buffered)
        if not self._read_survivors(replay, slots):
            return 0
        self._failures = sum(isinstance(item, Failure) for item in slots)
        self._buffer = slots
        if replay.order is None:
            return n
        rest = n - replay.swapped
        kept = replay.order[rest:]
        self._failures = sum(isinstance(slots[slot], Failure) for slot in kept.tolist())
        self._rest = [slots[slot] for slot in kept[::-1].tolist()]
        self._buffer = []
        return replay.swapped + min(rest, len(replay.order))

    def _read_survivors(self, replay: Replay, slots: list[Any]) -> bool:
        """Read the inputs, computing only the needed elements; return False at the end."""
        needed, positions = replay.needed()
        at = 0
        for slot, position in zip(needed.tolist(), positions.tolist(), strict=True):
            if not self._skip_inputs(position - at, at):
                return False
            try:
                slots[slot] = self._input.next()
            except StopIteration:
                return self._ended_early(position)
            except Exception as error:  # noqa: BLE001 - raised where it is drawn
                slots[slot] = Failure(error)
            at = position + 1
        if not self._skip_inputs(replay.inputs - at, at):
            return False
        self._read += replay.inputs
        return True

    def _skip_inputs(self, count: int, at: int) -> bool:
        skipped = self._input.advance(count) if count else 0
        return skipped == count or self._ended_early(at + skipped)

    def _ended_early(self, at: int) -> bool:
        """Check that the input may end: only an endless repeat of an empty input does."""
        if self._read + at > 0:
            raise FailedPreconditionError(
                f"the input of `shuffle` ended after {self._read + at} elements, but its "
                f"cardinality is {self._cardinality}; its source changed while it was read"
            )
        self._rest = []
        return False
