"""The tasks that a client reads, and the credit of their workers."""

from collections.abc import Iterable, Iterator

from stoker.service import messages as m
from stoker.service.client.connections.task_connections import TaskConnections
from stoker.service.client.flow.credit import WindowedCredit
from stoker.service.client.losses import Losses
from stoker.service.client.measure.task_reading import TaskReading
from stoker.service.client.orders.round_order import RoundOrder
from stoker.service.client.task_cursor import TaskCursor
from stoker.wire import frames as f


class ClientTasks:
    """Adds, leaves and loses tasks, as the dispatcher says.

    Args:
        schedule: the order of a coordinated read; ``None`` for other reads.
        credit: of their workers.
        connections: to their workers.
        losses: what workers lost.

    Attributes:
        cursors: the position in each task.
    """

    def __init__(
        self,
        schedule: RoundOrder | None,
        credit: WindowedCredit,
        connections: TaskConnections,
        losses: Losses,
    ) -> None:
        self.cursors: dict[int, TaskCursor] = {}
        self._schedule = schedule
        self._credit = credit
        self._connections = connections
        self._losses = losses
        self._leaving: dict[int, TaskCursor] = {}

    @property
    def reconnecting(self) -> bool:
        """True while a task waits to be connected again."""
        return any(cursor.waits for cursor in self.cursors.values())

    def add(self, task: m.TaskInfo, waited: float, now: float) -> None:
        """Read a task from now on, if it is not read; the user has waited `waited` seconds."""
        known = self.cursors.get(task.task_id)
        # A task that is read again has a new reader id, so that late messages of the first reading
        # concern nobody. (docs/decisions/058)
        again = known is not None and known.left and known.task.reader_id != task.reader_id
        if known is None or again:
            first = 0 if self._schedule is None else self._schedule.first_frame(task.task_id)
            reading = TaskReading() if known is None else known.reading
            reading.join(now, waited)
            self.cursors[task.task_id] = TaskCursor(
                task, next_frame=first, consumed=first, reported=first, reading=reading
            )
            self._connections.open(self.cursors[task.task_id], now)

    def leave(self, task_id: int, reader_id: int) -> m.TaskLeft | None:
        """Receive no more of a task, and leave it when what has arrived is consumed.

        Returns:
            The answer, if the assignment has not arrived.
        """
        cursor = self.cursors.get(task_id)
        if cursor is None or cursor.task.reader_id != reader_id:
            return m.TaskLeft(task_id, reader_id, (0, 0))
        if not cursor.lost:
            if not cursor.leaving:
                cursor.leaving = True
                self.disconnected(cursor)
            # What has arrived is consumed, and only the rest is given back. (docs/decisions/058)
            self._leaving[task_id] = cursor  # again, if the answer may be lost
        return None

    def finish_leaving(self) -> Iterator[m.TaskLeft]:
        """Leave tasks of which everything that has arrived is consumed; yield the answers."""
        for task_id, cursor in list(self._leaving.items()):
            if cursor.consumed == cursor.next_frame or cursor.lost:
                del self._leaving[task_id]
                if not cursor.left:
                    cursor.left = True
                    self._connections.give_back(cursor, cursor.next_frame, 0)
                yield m.TaskLeft(task_id, cursor.task.reader_id, (cursor.next_frame, 0))

    def leave_after(self, task_id: int, frames: int) -> None:
        """Leave a task, whose worker drains, when its first `frames` frames have arrived.

        The worker waits for that, so it may send these frames without regard to the limits, which
        a user that does not read would keep exhausted.
        """
        cursor = self.cursors.get(task_id)
        if cursor is None or not cursor.open:  # it is told when it is connected
            return
        if cursor.next_frame >= frames:
            cursor.leaving, cursor.given_back = True, frames
            self._connections.send(cursor, f.GiveBack(frames, 0))
            self.ended(task_id)
            self.disconnected(cursor)
        elif cursor.acknowledged != (cursor.connection, cursor.next_frame):
            cursor.acknowledged = cursor.connection, cursor.next_frame
            self._credit.extend(task_id, frames - cursor.next_frame)
            credit = f.Credit(cursor.next_frame, *self._credit.grant(task_id))
            self._connections.send(cursor, credit)

    def leaves(self, cursor: TaskCursor, message: f.Message, now: float) -> bool:
        """Handle a message of a worker whose task the client leaves: it gets back what it sends.

        A worker that drains waits for `GiveBack`, which may be lost with its connection: it is sent
        on each connection until the worker answers with `Bye`.

        Returns:
            Whether the client leaves the task.
        """
        if cursor.given_back is not None and isinstance(message, f.Welcome):
            cursor.open, cursor.attempts, cursor.reason = True, 0, ""
            self._connections.send(cursor, f.GiveBack(cursor.given_back, 0))
        elif cursor.given_back is not None and isinstance(message, f.Bye):
            self._connections.close(cursor)
            if message.error is not None and message.error.code == "UnavailableError":
                self._connections.retry(cursor, message.error.message, now)
            else:
                cursor.left, cursor.given_back = True, None
        return cursor.leaving

    def ended(self, task_id: int) -> None:
        """Record that all elements of a task have arrived, unless other clients give some back."""
        if self._schedule is not None:
            self._schedule.task_ended(task_id)

    def lose(self, lost: m.TaskLost) -> str | None:
        """Handle the loss of a task's worker; chunks that have arrived are kept.

        Returns:
            A warning for the user.
        """
        cursor = self.cursors.setdefault(
            lost.task_id, TaskCursor(m.TaskInfo(lost.task_id, lost.worker, {}))
        )
        if cursor.lost:
            return None
        # A worker that leaves reports what it could not deliver; after a crash nobody knows.
        # (docs/decisions/062)
        complete = cursor.ended or lost.elements == 0
        cursor.lost = True
        if complete:
            self.ended(lost.task_id)
        if self._schedule is not None:
            self._schedule.task_lost(lost.task_id)
        self._connections.give_back(cursor, cursor.next_frame, 0)  # received frames are kept
        self.disconnected(cursor)
        return None if complete and not lost.read_again else self._losses.task_lost(lost)

    # ── connections and credit ────────────────────────────────────────────────────────────────────
    def retry(self, cursor: TaskCursor, reason: str, now: float) -> None:
        """Connect to the worker again, later."""
        self._connections.retry(cursor, reason, now)
        self.disconnected(cursor)

    def disconnected(self, cursor: TaskCursor) -> None:
        """Divide the credit of a worker among the others."""
        self.report_all(self._credit.disconnected(cursor.task.task_id))

    def start_at(self, cursor: TaskCursor, frame: int) -> None:
        """Skip the frames of a task before `frame`, and let the worker send."""
        if frame > cursor.next_frame:
            cursor.next_frame = cursor.consumed = frame
        self.report(cursor)

    def report(self, cursor: TaskCursor) -> None:
        """Send the worker the consumed frames and its credit."""
        started = self._schedule is None or self._schedule.started
        if started and cursor.open and not cursor.leaving:
            elements, nbytes = self._credit.grant(cursor.task.task_id)
            self._connections.send(cursor, f.Credit(cursor.consumed, elements, nbytes))
            cursor.reported = cursor.consumed

    def report_all(self, task_ids: Iterable[int]) -> None:
        """Report to the workers of these tasks, once each."""
        for task_id in dict.fromkeys(task_ids):
            self.report(self.cursors[task_id])
