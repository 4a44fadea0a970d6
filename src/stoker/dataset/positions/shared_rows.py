"""Rows of a table by their positions, for all readers of an epoch in a process."""

import threading
from typing import cast

from msgspec.structs import replace

from stoker.dataset.streams.rows.row_numbers import EMPTY, RowNumbers, joined
from stoker.dataset.streams.stream import NO_LIMIT, Stream
from stoker.dataset.tree.node import Context, Node


class SharedRows:
    """Reads the row numbers of a table at any positions; used from any thread.

    All readers have equal trees, seeds, salts and epochs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._node: Node | None = None
        self._context = Context()
        self._stream: Stream | None = None
        self._position = 0

    def begin(self, node: Node, context: Context) -> None:
        """Let the first reader determine the tree that all read.

        Args:
            node: a node with a table.
            context: of the node.
        """
        with self._lock:
            if self._node is None:
                self._node = node
                self._context = replace(
                    context, as_rows=True, splits=None, meters=context.meters.weighted(0)
                )

    def read(self, positions: range) -> RowNumbers:
        """Return the rows at these positions."""
        with self._lock:
            if self._stream is None or self._position > positions.start:
                assert self._node is not None
                self._stream = self._context.open(self._node)
                self._position = 0
            stream = self._stream
            self._position += stream.advance(positions.start - self._position)
            rows = EMPTY
            count = positions[-1] + 1 - positions.start
            while len(rows) < count:
                chunk = stream.next_chunk(count - len(rows), NO_LIMIT)
                if not chunk:
                    break
                rows = joined(rows, cast("RowNumbers", chunk))
            self._position += len(rows)
            return rows[:: positions.step]
