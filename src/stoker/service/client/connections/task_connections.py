"""The connections of a client to the workers of its tasks."""

import random

from stoker.service.client.actions import Action, Connect, Disconnect, ToWorker
from stoker.service.client.task_cursor import TaskCursor
from stoker.wire import frames as f


class TaskConnections:
    """Numbers the connections of one client, and adds the actions that open and close them.

    Args:
        actions: the list of actions to which it adds its own.
        rng: jitter of reconnections.
    """

    def __init__(self, actions: list[Action], rng: random.Random) -> None:
        self._actions = actions
        self._rng = rng
        self._last = 0
        self._cursors: dict[int, TaskCursor] = {}

    def get(self, connection: int) -> TaskCursor | None:
        """Return the position in the task of a connection; ``None`` if it is an older one."""
        return self._cursors.get(connection)

    def open(self, cursor: TaskCursor, now: float) -> None:
        """Connect to the worker of a task."""
        self._last += 1
        cursor.dial(self._last, now)
        self._cursors[self._last] = cursor
        self._actions.append(Connect(self._last, cursor.task))

    def lost(self, connection: int, reason: str, now: float) -> TaskCursor | None:
        """Handle a connection that broke or could not be opened; return as `get`."""
        cursor = self._cursors.pop(connection, None)
        if cursor is not None:
            self.retry(cursor, reason, now)
        return cursor

    def retry(self, cursor: TaskCursor, reason: str, now: float) -> None:
        """Connect again later."""
        cursor.postpone(reason, now, self._rng)

    def close(self, cursor: TaskCursor, farewell: bool = False) -> None:
        """Close the connection of a task, if there is one; `farewell` as in `Disconnect`."""
        if cursor.connection is not None:
            self._cursors.pop(cursor.connection, None)
            self._actions.append(Disconnect(cursor.connection, farewell))
            cursor.connection, cursor.open = None, False

    def give_back(self, cursor: TaskCursor, frame: int, consumed: int) -> None:
        """Give back all after the first `consumed` elements of `frame`, and close."""
        given_back = self.send(cursor, f.GiveBack(frame, consumed))
        self.close(cursor, farewell=given_back)

    def send(self, cursor: TaskCursor, message: f.Message) -> bool:
        """Send a message to the worker of a task; return whether the connection is open."""
        if not cursor.open or cursor.connection is None:
            return False
        self._actions.append(ToWorker(cursor.connection, message))
        return True
