"""unbatch: splits batches into rows."""

from functools import partial
from typing import Any, ClassVar

from stoker.dataset.collation.batch_reader import BatchReader
from stoker.dataset.collation.rows import (
    Cut,
    as_rows,
    list_as_objects,
    row_spec,
    rows_in_spec,
    slicer,
)
from stoker.dataset.streams.failures import Origin
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node, OneInput
from stoker.elements.sizes import element_bytes
from stoker.elements.spec import Spec


class Unbatch(OneInput, frozen=True, eq=False, kw_only=True):
    """Cuts every element along its first dimension."""

    kind: ClassVar[str] = "unbatch"

    def element_spec(self) -> Spec:
        return row_spec(self.input.element_spec())

    def cardinality(self) -> int:
        return unbatched_cardinality(self.input)

    def open(self, context: Context) -> Stream:
        return _UnbatchStream(context.open(self.input), self.origin)


def unbatched_cardinality(node: Node) -> int:
    """Return the total number of rows of the batches of a node."""
    batches = node.cardinality()
    if batches <= 0:
        return batches
    rows = rows_in_spec(node.element_spec())
    return UNKNOWN_CARDINALITY if rows is None else batches * rows


class _UnbatchStream(Stream):
    def __init__(self, stream: Stream, origin: Origin) -> None:
        self._batches = BatchReader(stream, partial(as_rows, vector=list_as_objects), origin)
        self._rows: Any = None
        self._cut: Cut = slicer(())
        self._row_bytes = 1

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        chunk: list[Any] = []
        while len(chunk) < max_elements and max_bytes > 0:
            if not self._batches.left:
                # Reading may block, and a chunk that has rows must not wait.
                if chunk and not self._batches.has_buffered():
                    break
                try:
                    self._batches.open_next(1 if lazy else max_elements, max_bytes)
                except StopIteration:
                    break
                except Exception as error:
                    if not chunk:
                        raise
                    # The rows before the error are returned first; the next call raises.
                    self._batches.keep(error)
                    break
                continue
            self._look()
            room = max(1, min(max_elements - len(chunk), max_bytes // self._row_bytes))
            start, stop = self._batches.use(room)
            chunk += self._cut(start, stop)
            max_bytes -= (stop - start) * self._row_bytes
        return chunk

    def advance(self, n: int) -> int:
        return self._batches.advance(n)

    def close(self) -> None:
        self._batches.close()

    def _look(self) -> None:
        """Prepare to cut the current batch."""
        rows = self._batches.rows
        if rows is not self._rows:
            self._rows = rows
            self._cut = slicer(rows)
            self._row_bytes = max(1, element_bytes(rows) // (self._batches.at + self._batches.left))
