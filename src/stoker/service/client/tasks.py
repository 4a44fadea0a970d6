"""The tasks that a client reads, the connections to their workers, and the credit of these."""

import random
from collections.abc import Iterable, Iterator

from stoker.service import messages as m
from stoker.service.client.actions import Action, Connect, Disconnect, ToWorker
from stoker.service.client.flow.grants import Grants
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
        losses: what workers lost.
        actions: the list of actions to which it adds its own.
        rng: jitter of reconnections.

    Attributes:
        cursors: the position in each task.
    """

    def __init__(
        self,
        schedule: RoundOrder | None,
        credit: Grants,
        losses: Losses,
        actions: list[Action],
        rng: random.Random,
    ) -> None:
        self.cursors: dict[int, TaskCursor] = {}
        self._last_lost: m.TaskLost | None = None
        self._schedule = schedule
        self._credit = credit
        self._losses = losses
        self._actions = actions
        self._rng = rng
        self._leaving: dict[int, TaskCursor] = {}
        self._last_connection = 0
        self._by_connection: dict[int, TaskCursor] = {}

    @property
    def reconnecting(self) -> bool:
        """True while a task waits to be connected again."""
        return any(cursor.waits for cursor in self.cursors.values())

    @property
    def last_lost(self) -> m.TaskLost | None:
        """The task that was lost last, if no other is left; ``None`` otherwise."""
        left = any(not (cursor.lost or cursor.left) for cursor in self.cursors.values())
        return None if left else self._last_lost

    def awaited(self, task_id: int | None) -> list[str]:
        """Return the tasks that a read waits for, as text: this one if it is read, or all."""
        cursors = [self.cursors[task_id]] if task_id in self.cursors else self.cursors.values()
        return [str(cursor) for cursor in cursors if not cursor.over]

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
            self.connect(self.cursors[task.task_id], now)

    def forget_all(self) -> None:
        """Forget all tasks, of a dispatcher that knows them no more."""
        for cursor in self.cursors.values():
            self._disconnect(cursor)
            self._credit.disconnected(cursor.task.task_id)
        self.cursors.clear()
        self._leaving.clear()

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
                self._free_credit(cursor)
            # What has arrived is consumed, and only the rest is given back. (docs/decisions/058)
            self._leaving[task_id] = cursor  # again, if the answer may be lost
        return None

    def finish_leaving(self) -> Iterator[m.TaskLeft]:
        """Leave tasks of which everything that has arrived is consumed; yield the answers."""
        for task_id, cursor in list(self._leaving.items()):
            settled = cursor.consumed == cursor.next_frame or not self._credit.by_frame
            if settled or cursor.lost:
                del self._leaving[task_id]
                if not cursor.left:
                    cursor.left = True
                    self.give_back(cursor, cursor.next_frame, 0)
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
            self._send(cursor, f.GiveBack(frames, 0))
            self.ended(task_id)
            self._free_credit(cursor)
        elif cursor.acknowledged != (cursor.connection, cursor.next_frame):
            cursor.acknowledged = cursor.connection, cursor.next_frame
            self._credit.extend(task_id, frames - cursor.next_frame)
            self._send(cursor, self._credit.message(task_id, cursor.next_frame))

    def leaves(self, cursor: TaskCursor, message: f.Message, now: float) -> bool:
        """Handle a message of a worker whose task the client leaves: it gets back what it sends.

        A worker that drains waits for `GiveBack`, which may be lost with its connection: it is sent
        on each connection until the worker answers with `Bye`.

        Returns:
            Whether the client leaves the task.
        """
        if cursor.given_back is not None and isinstance(message, f.Welcome):
            cursor.open, cursor.attempts, cursor.reason = True, 0, ""
            self._send(cursor, f.GiveBack(cursor.given_back, 0))
        elif cursor.given_back is not None and isinstance(message, f.Bye):
            self._disconnect(cursor)
            if message.error is not None and message.error.code == "UnavailableError":
                cursor.postpone(message.error.message, now, self._rng)
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
        cursor.lost, self._last_lost = True, lost
        if complete:
            self.ended(lost.task_id)
        if self._schedule is not None:
            self._schedule.task_lost(lost.task_id)
        self.give_back(cursor, cursor.next_frame, 0)  # received frames are kept
        self._free_credit(cursor)
        if not self._credit.by_frame:
            if lost.reason == m.STOPPED:
                return None
            return (
                f"worker {lost.worker} was lost: {lost.reason}. Other workers compute what it had "
                "not delivered"
            )
        return None if complete and not lost.read_again else self._losses.task_lost(lost)

    # ── connections ───────────────────────────────────────────────────────────────────────────────
    def of_connection(self, connection: int) -> TaskCursor | None:
        """Return the position in the task of a connection; ``None`` if it is an older one."""
        return self._by_connection.get(connection)

    def connect(self, cursor: TaskCursor, now: float) -> None:
        """Connect to the worker of a task."""
        self._last_connection += 1
        cursor.dial(self._last_connection, now)
        self._by_connection[self._last_connection] = cursor
        self._actions.append(Connect(self._last_connection, cursor.task))

    def connection_lost(self, connection: int, reason: str, now: float) -> None:
        """Handle a connection that broke or could not be opened: connect again later."""
        cursor = self._by_connection.pop(connection, None)
        if cursor is not None:
            cursor.postpone(reason, now, self._rng)
            self._free_credit(cursor)

    def reconnect(self, cursor: TaskCursor, reason: str, now: float) -> None:
        """Close the connection of a task, and connect again later."""
        self._disconnect(cursor)
        cursor.postpone(reason, now, self._rng)
        self._free_credit(cursor)

    def give_back(self, cursor: TaskCursor, frame: int, consumed: int) -> None:
        """Give back all after the first `consumed` elements of `frame`, and close."""
        given_back = self._credit.by_frame and self._send(cursor, f.GiveBack(frame, consumed))
        self._disconnect(cursor, farewell=given_back)

    def give_back_all(self, partly: int | None, consumed: int) -> dict[int, tuple[int, int]]:
        """Give back what is not consumed of all tasks; return the positions of `GiveBack`.

        Args:
            partly: the task of which `consumed` elements of the next frame are consumed, if any.
            consumed: see `partly`.
        """
        given_back = {}
        for task_id, cursor in self.cursors.items():
            mine = consumed if task_id == partly else 0
            if self._credit.by_frame and not (cursor.lost or cursor.left):
                given_back[task_id] = (cursor.consumed, mine)
            self.give_back(cursor, cursor.consumed, mine)
        return given_back

    def _disconnect(self, cursor: TaskCursor, farewell: bool = False) -> None:
        """Close the connection of a task, if there is one; `farewell` as in `Disconnect`."""
        if cursor.connection is not None:
            self._by_connection.pop(cursor.connection, None)
            self._actions.append(Disconnect(cursor.connection, farewell))
            cursor.connection, cursor.open = None, False

    def _send(self, cursor: TaskCursor, message: f.Message) -> bool:
        """Send a message to the worker of a task; return whether the connection is open."""
        if not cursor.open or cursor.connection is None:
            return False
        self._actions.append(ToWorker(cursor.connection, message))
        return True

    # ── credit ────────────────────────────────────────────────────────────────────────────────────
    def _free_credit(self, cursor: TaskCursor) -> None:
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
            self._send(cursor, self._credit.message(cursor.task.task_id, cursor.consumed))
            cursor.reported = cursor.consumed

    def report_all(self, task_ids: Iterable[int]) -> None:
        """Report to the workers of these tasks, once each."""
        for task_id in dict.fromkeys(task_ids):
            self.report(self.cursors[task_id])
