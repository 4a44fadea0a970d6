"""The pipeline of a task by position: computes the turns that the worker gives."""

import logging
from collections.abc import Iterator
from dataclasses import replace

from msgspec.structs import replace as replaced

from stoker.dataset.drawn_seeds import salts_by_number
from stoker.dataset.positions.position_stream import PositionStream, open_positions
from stoker.dataset.positions.shared_rows import SharedRows
from stoker.dataset.streams.calls.task_calls import recorded_unplaced
from stoker.dataset.tree.node import Context, Node
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.chunk_queue import FRAME_ELEMENTS
from stoker.service.worker.pipelines.failure import describe
from stoker.service.worker.pipelines.pipeline import (
    Pipeline,
    PipelineHost,
    chunk_of_error,
    chunks_of,
    task_fields,
)
from stoker.service.worker.pipelines.turn_source import TurnSource

logger = logging.getLogger("stoker.worker")


class TurnPipeline(Pipeline):
    """Run one task by position on its own thread until closed.

    Args:
        start: the task.
        host: the worker.
        rows: of all tasks of the worker that read the same epoch of the dataset.
    """

    def __init__(self, start: m.TaskStart, host: PipelineHost, rows: SharedRows) -> None:
        self._rows = rows
        self._turns = TurnSource(lambda: host.need_turn(start.task_id))
        self._singly = 0
        """The number of elements to read one by one: one of them ends the stream."""
        super().__init__(start, host)

    def give_turn(self, turn: range) -> None:
        """Answer `PipelineHost.need_turn`."""
        self._turns.give(turn)

    def close(self) -> None:
        super().close()
        self._turns.close()

    def _compute(self) -> None:
        while not self._closed.is_set():
            try:
                stream = self._open_positions()
            except BaseException as error:  # noqa: BLE001 - the trainer gets any error
                self._fail_turn(error)
            else:
                self._read(stream)
                self._close(stream)

    def _open_positions(self) -> PositionStream:
        root, context = self._load()
        with recorded_unplaced(context.calls):
            return open_positions(root, context, self._wanted(), self._rows)

    def _load(self) -> tuple[Node, Context]:
        root, context = super()._load()
        start, mode = self.start, self.start.mode
        assert isinstance(mode, m.PositionTask)
        # The draws are those of the trainer's pipeline, whose options and numbers of nodes count.
        numbers = {node: n + mode.first_number for node, n in context.numbers.items()}
        draws = {
            "seed": start.seed,
            "seed_given": mode.seed_given,
            "numbers": numbers,
            "salts": salts_by_number(numbers, start.salts),
        }
        return root, replaced(context, **draws)

    def _wanted(self) -> Iterator[range]:
        turns = self._turns.open()
        while True:
            with self.meter.times.lacking_split():
                turn = next(turns, None)
            if turn is None:
                return
            yield turn

    def _fail_turn(self, error: BaseException, most: int = FRAME_ELEMENTS) -> None:
        """Let the positions of the next turn have an error that occurred before the turn.

        A dataset that cannot be opened fails at all of them. It is opened again for the turn after:
        the reason may be a file that is missing for a while.
        """
        for position in next(self._turns.open(), range(0))[:most]:
            self._deliver_error(error, position)
            if self._closed.is_set():
                return

    def _read(self, stream: PositionStream) -> None:
        """Deliver what a stream yields, until it ends or cannot go on."""
        self.meter.begin()
        while not self._closed.is_set():
            most = 1 if self._singly else FRAME_ELEMENTS
            try:
                with self.meter.times.reading():
                    span, elements = self.meter.section.read(stream, most, self._host.chunk_bytes)
            except BaseException as error:  # noqa: BLE001 - it occupies its element's position
                if self._closed.is_set() or not self._fail(error, stream, most):
                    return
                continue
            if not span:
                return
            for chunk in chunks_of(elements, self._host.address, span):
                self._deliver_at(chunk, span[: chunk.positions])
                span = span[chunk.positions :]
            self._singly = max(0, self._singly - len(elements))

    def _fail(self, error: BaseException, stream: PositionStream, most: int) -> bool:
        """Deliver an error of a call for `most` elements; return whether the stream goes on."""
        position = self._turns.next_position
        if position is None:
            self._fail_turn(error, most=1)
            return False
        exits = not isinstance(error, Exception)
        if exits and most > 1:
            # Elements before the one that called sys.exit are lost with it.
            self._singly = most
            return False
        self._singly = 0
        self._deliver_error(error, position)
        # The stream is undefined after sys.exit, and if it lost count of its positions.
        return not exits and position == stream.position

    def _deliver_error(self, error: BaseException, position: int) -> None:
        record = describe(error, self._host.address, position)
        self._deliver_at(chunk_of_error(record), range(position, position + 1))

    def _deliver_at(self, chunk: Chunk, span: range) -> None:
        self._turns.delivered(len(span))
        self._deliver(replace(chunk, spans=(span,)))

    def _close(self, stream: PositionStream) -> None:
        try:
            stream.close()
        except Exception:  # what it has computed is delivered
            logger.exception("a pipeline failed at its end", extra=task_fields(self.start))
