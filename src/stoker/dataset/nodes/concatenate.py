"""concatenate: the elements of several datasets, dataset after dataset."""

from typing import ClassVar

from stoker.dataset.nodes.repeat import is_exact
from stoker.dataset.streams.sequence import SequenceStream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node, SeveralInputs


class Concatenate(SeveralInputs, frozen=True, eq=False, kw_only=True):
    """Yields the elements of the inputs in order; an input is opened when reading reaches it."""

    kind: ClassVar[str] = "concatenate"
    sums_inputs: ClassVar[bool] = True

    def open(self, context: Context) -> Stream:
        return _ConcatenateStream(self.parts, context)


class _ConcatenateStream(SequenceStream):
    def __init__(self, parts: tuple[Node, ...], context: Context) -> None:
        super().__init__()
        self._parts = parts
        self._context = context
        self._at = 0

    def _open_next(self, max_elements: int, max_bytes: int, lazy: bool) -> Stream | None:
        if self._at == len(self._parts):
            return None
        self._at += 1
        return self._context.open(self._parts[self._at - 1])

    def _skip_unopened(self, n: int) -> int:
        skipped = 0
        # Where splits are assigned, a part's length here is not its cardinality.
        if self._context.splits is not None:
            return 0
        for part in self._parts[self._at :]:
            length = part.cardinality()
            if not 0 <= length <= n - skipped or not is_exact(part):
                break
            skipped += length
            self._at += 1
        return skipped

    def close(self) -> None:
        self._at = len(self._parts)
        super().close()
