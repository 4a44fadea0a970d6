"""A stream of the elements at wanted positions of an epoch."""

import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from msgspec.structs import replace

from stoker.dataset import nodes
from stoker.dataset.positions.arithmetic import length_of, levels_of, nodes_by_position, steps_below
from stoker.dataset.positions.count import counted_form
from stoker.dataset.positions.exchange import passed_by
from stoker.dataset.positions.position_log import PositionLog
from stoker.dataset.positions.position_source import PositionSource
from stoker.dataset.positions.shared_rows import SharedRows
from stoker.dataset.positions.turns import Turns
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node, number
from stoker.dataset.tree.walk import classes_of_functions
from stoker.errors import FailedPreconditionError


def open_positions(
    root: Node, context: Context, turns: Iterator[range], rows: SharedRows | None = None
) -> "PositionStream":
    """Open a counted tree to read the elements at wanted positions.

    Args:
        root: a tree for which `count_positions` returns `Counted`.
        context: of the epoch, without splits; the number of the root, if it has one, shifts those
            of all nodes, as for a part of a larger tree.
        turns: yields ranges of positions of the root, of steps of 1 or more, in any order; may
            block, and ends after `PositionStream.close`.
        rows: of all readers of this epoch of the tree in this process; ``None``: not shared.
    """
    last = context.numbers.get(root)
    root = counted_form(root)
    above, source = nodes_by_position(root)
    numbers = number(root)
    if last is not None:
        shift = last - numbers[root]
        numbers = {node: n + shift for node, n in numbers.items()}
    salts = {n: context.salts.get(n + passed_by(node), 0) for node, n in numbers.items()}
    levels = levels_of(above)
    # Nodes above a short last batch go on in a new stream.
    has_groups = any(level.group > 1 for level in levels.values())
    wanted = Turns(turns, steps_below(above), length_of(root) - 1 if has_groups else None)
    running = {node: numbers[node] for node in number(source)}
    rows = SharedRows() if rows is None else rows
    top: Node = PositionSource(whole=source, rows=rows, site=source.site)
    running[top] = numbers[source]
    for node in reversed(above):
        # The source reads the elements that these nodes select.
        if not isinstance(node, nodes.Take | nodes.Skip | nodes.Shard):
            top = node.with_inputs([top])
            running[top] = numbers[node]

    def classes() -> Iterator[type]:
        return chain(context.record_classes(), classes_of_functions(source))

    by_number = {numbers[node]: level for node, level in levels.items()}

    def open_running() -> Stream:
        wanted.log = PositionLog(by_number)
        changes = {"numbers": running, "salts": salts, "splits": wanted, "positions": wanted.log}
        return open_stream(top, replace(context, record_classes=classes, **changes))

    return PositionStream(open_running, wanted)


class PositionStream:
    """The elements at the positions of turns, in the order of the turns.

    An error occupies the position of its element. Read by one thread at a time.

    Args:
        open_running: opens the stream that computes the elements.
        turns: the wanted positions.

    Attributes:
        position: of the error that `next_chunk` has just raised; otherwise the position after the
            last element in its turn.
    """

    def __init__(self, open_running: Callable[[], Stream], turns: Turns) -> None:
        self._open = open_running
        self._turns = turns
        self._lock = threading.Lock()
        self._closed = False
        self._stream: Stream | None = open_running()
        # Elements that were read, the first `_at` of them yielded.
        self._elements: list[Any] = []
        self._at = 0
        self.position = 0

    def next_chunk(self, max_elements: int, max_bytes: int) -> tuple[range, list[Any]]:
        """Return elements at consecutive positions of a turn, and the positions.

        Wait for the first element only. An empty range means that the turns have ended.

        Raises:
            Exception: the error that occupies the position `position`.
        """
        if self._at == len(self._elements):
            try:
                self._elements, self._at = self._read(max_elements, max_bytes), 0
            except BaseException:
                if left := self._turns.left():
                    self.position = left[0]
                    self._turns.take(1)
                raise
            if not self._elements:
                return range(0), []
        self._turns.left()
        at, elements = self._at, self._elements
        positions = self._turns.take(min(max_elements, len(elements) - at))
        stop = at + len(positions)
        self.position = positions[-1] + positions.step
        # What was yielded is not kept while the next turn is awaited.
        self._elements, self._at = (elements, stop) if stop < len(elements) else ([], 0)
        return positions, elements if len(positions) == len(elements) else elements[at:stop]

    def close(self) -> None:
        """Close without waiting for a function that runs; idempotent, from any thread."""
        self._turns.close()
        with self._lock:
            self._closed = True
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _read(self, max_elements: int, max_bytes: int) -> list[Any]:
        """Return elements of the running stream; none at the end of the turns."""
        while (stream := self._stream or self._open_again()) is not None:
            most = min(max_elements, len(self._turns.left()) or max_elements)
            if chunk := stream.next_chunk(most, max_bytes):
                return chunk
            self._check_complete()
            with self._lock:
                self._stream = None
            stream.close()
        return []

    def _open_again(self) -> Stream | None:
        """Open a stream for further turns; return None if there are none."""
        if not self._turns.wait():
            return None
        stream = self._open()
        with self._lock:
            if not self._closed:
                self._stream = stream
                return stream
        stream.close()
        return None

    def _check_complete(self) -> None:
        if (left := self._turns.left()) and not self._closed:
            raise FailedPreconditionError(
                f"the dataset ended before position {left[0]}, which is less than its cardinality; "
                "its source changed while it was read"
            )
