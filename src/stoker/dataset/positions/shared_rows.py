"""Rows of a table by their positions, for all readers of an epoch in a process."""

import threading
from collections import OrderedDict
from typing import NamedTuple, cast

from stoker.dataset.positions.stream_copies import StreamCopies
from stoker.dataset.streams.measure.recording import Meters
from stoker.dataset.streams.rows.row_numbers import EMPTY, RowNumbers, concatenated
from stoker.dataset.streams.stream import NO_LIMIT, Stream
from stoker.dataset.tree.node import Context, Node

BLOCK = 1 << 13
"""Rows that are read in a step; drawing 8,192 rows takes about 0.1 ms."""

# Blocks that are returned by a read at most.
_MOST_READ = 8

# Row numbers that are kept for other readers, such as consumers that share each block.
_KEPT_BYTES = 16 << 20

# Streams that go on from where a reader is; others begin with a copy.
_MOST_CURSORS = 16


class _Cursor(NamedTuple):
    """A stream of row numbers, and the block that it reads next."""

    block: int
    stream: Stream


class SharedRows:
    """Reads the row numbers of a table at any positions; used from any thread.

    Rows of a shuffle can only be drawn in order. They are drawn in blocks, which all readers share,
    by the nearest stream before the block. Copies of streams are kept at intervals, so that earlier
    rows can be read again. All readers have equal trees, seeds, salts and epochs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._node: Node | None = None
        self._context = Context()
        self._blocks: OrderedDict[int, RowNumbers] = OrderedDict()
        # The cursor that was used last comes last.
        self._cursors: list[_Cursor] = []
        self._copies = StreamCopies()

    def begin(self, node: Node, context: Context) -> None:
        """Let the first reader determine the tree that all read.

        Args:
            node: a node with a table.
            context: of the node.
        """
        # What belongs to the task of this reader would be kept, and is not used by tables.
        shared = Context(
            seed=context.seed,
            seed_given=context.seed_given,
            salts=context.salts,
            epoch=context.epoch,
            numbers=context.numbers,
            as_rows=True,
            meters=Meters(weight=0),
        )
        with self._lock:
            if self._node is None:
                self._node, self._context = node, shared

    def read(self, positions: range) -> RowNumbers:
        """Return the rows at the first of these positions, at least one."""
        first = positions.start // BLOCK
        last = min(positions[-1] // BLOCK, first + _MOST_READ - 1)
        parts = []
        with self._lock:
            for block in range(first, last + 1):
                skipped = -((positions.start - block * BLOCK) // positions.step)
                wanted = positions[max(0, skipped) :]
                start, stop = wanted.start - block * BLOCK, positions.stop - block * BLOCK
                if start < BLOCK:
                    parts.append(self._block(block)[start : stop : positions.step])
        return concatenated(parts)

    def _block(self, block: int) -> RowNumbers:
        rows = self._blocks.get(block)
        if rows is None:
            rows = self._blocks[block] = self._read_block(block)
            most = _KEPT_BYTES // (BLOCK * 8 * len(rows.columns))
            while len(self._blocks) > most:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(block)
        return rows

    def _read_block(self, block: int) -> RowNumbers:
        at, stream = self._nearest(block)
        while at < block:
            # Copies are kept on the way, also where many blocks are skipped.
            stop = min(block, self._copies.next_after(at))
            stream.advance((stop - at) * BLOCK)
            at = stop
            self._copies.keep(at, stream)
        parts: list[RowNumbers] = []
        left = BLOCK
        while left and (chunk := stream.next_chunk(left, NO_LIMIT)):
            parts.append(cast("RowNumbers", chunk))
            left -= len(chunk)
        self._cursors.append(_Cursor(block + 1, stream))
        self._copies.keep(block + 1, stream)
        del self._cursors[:-_MOST_CURSORS]
        return concatenated(parts) if parts else EMPTY

    def _nearest(self, block: int) -> _Cursor:
        """Remove and return the last cursor before a block, or begin one."""
        cursor = max((x for x in self._cursors if x.block <= block), default=None, key=_block_of)
        copied = self._copies.nearest(block)
        if cursor is not None and (copied is None or cursor.block >= copied[0]):
            self._cursors.remove(cursor)
            return cursor
        if copied is not None:
            return _Cursor(copied[0], copied[1].copy())
        assert self._node is not None
        stream = self._context.open(self._node)
        self._copies.keep(0, stream)
        return _Cursor(0, stream)


def _block_of(cursor: _Cursor) -> int:
    return cursor.block
