"""The client without I/O: what dispatcher and workers say in, actions out.

The shell (`shell.py`) carries out actions and reports what happens; the user's thread calls `take`. A
*connection* is a number this logic gives to each attempt to reach a worker, so that what arrives late
from an older one is recognized.
"""

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from stoker.errors import ErrorRecord, StokerError, UnavailableError, from_record
from stoker.service import messages as m
from stoker.service.client.credit import BYTES, Metered, Windows
from stoker.wire import frames as f

DISPATCHER_PATIENCE = 10.0
"""Seconds without dispatcher and without any worker to read from, after which the client gives up."""

RECONNECT_FIRST, RECONNECT_LONGEST = 0.05, 2.0
"""Seconds until a broken connection is tried again, doubling."""

REPORT_FRAMES = 4
"""Consumption is reported after so many frames, or when nothing more has arrived."""


@dataclass(frozen=True)
class ToDispatcher:
    """Say `message` on the session; it is dropped if the session is broken."""

    message: m.FromClient


@dataclass(frozen=True)
class Connect:
    """Reach the worker that runs `task`; report `connected` or `connection_lost`."""

    connection: int
    task: m.TaskInfo


@dataclass(frozen=True)
class ToWorker:
    """Send `message` on a data connection."""

    connection: int
    message: f.Message


@dataclass(frozen=True)
class Disconnect:
    """Close a data connection; with `farewell`, when the worker has said `Bye` to a `GiveBack`."""

    connection: int
    farewell: bool = False


@dataclass(frozen=True)
class SetHeartbeat:
    """Send a heartbeat at least so often."""

    milliseconds: int


@dataclass(frozen=True)
class Warn:
    """Tell the user."""

    text: str


Action: TypeAlias = ToDispatcher | Connect | ToWorker | Disconnect | SetHeartbeat | Warn


@dataclass(frozen=True)
class Chunk:
    """Elements for the user, or the error at one position."""

    task_id: int
    frame: int
    elements: list[Any]
    error: ErrorRecord | None = None


class End:
    """There is nothing more."""


@dataclass
class Reader:
    """The reading of one task.

    Attributes:
        connection: the open or opening connection; ``None`` while waiting to try again.
        open: the worker has answered on it.
        next_frame: the first frame not received.
        consumed: the first frame the user has not taken the whole of.
        reported: the value of `consumed` the worker knows.
        over: the task has ended or is lost; nothing more will be received.
    """

    task: m.TaskInfo
    connection: int | None = None
    open: bool = False
    next_frame: int = 0
    consumed: int = 0
    reported: int = 0
    over: bool = False
    attempts: int = 0
    try_at: float = 0.0
    why: str = ""


class Client:
    """Reads one iteration.

    Args:
        hello: what is read.
        max_outstanding: elements sent and not taken, over all workers; ``None``: a window each.
        connect_timeout: seconds to wait for the dispatcher at first.
        service: the dispatcher's address, for messages.
        rng: spreads attempts to reconnect.
        now: seconds, on the clock of all later calls.
    """

    def __init__(
        self,
        hello: m.ClientHello,
        max_outstanding: int | None,
        connect_timeout: float,
        service: str,
        rng: random.Random,
        now: float,
    ) -> None:
        self.readers: dict[int, Reader] = {}
        self.finished = False
        self.elements_delivered = 0
        self.splits_lost = 0
        self.tasks_lost = 0
        self._hello = hello
        self._windows = Windows() if max_outstanding is None else Metered(max_outstanding)
        self._connect_timeout = connect_timeout
        self._service = service
        self._rng = rng
        self._out_since: float | None = now
        self._last_connection = 0
        self._by_connection: dict[int, Reader] = {}
        self._ready: deque[Chunk] = deque()
        self._current: Chunk | None = None
        self._error: StokerError | None = None
        self._actions: list[Action] = []

    # ── the session ───────────────────────────────────────────────────────────────────────────────
    def session_opened(self) -> list[Action]:
        """The dispatcher was reached, for the first time or again."""
        self._do(ToDispatcher(self._hello))
        return self._take_actions()

    def session_lost(self, now: float) -> list[Action]:
        """The session broke, or could not be opened. Reading goes on."""
        if self._out_since is None:
            self._out_since = now
        return self._take_actions()

    def session_message(self, message: m.FromDispatcher, now: float) -> list[Action]:
        """The dispatcher says something."""
        if isinstance(message, m.ClientWelcome):
            self._out_since = None
            self._hello = _resumed(self._hello, message)
            self._do(SetHeartbeat(message.heartbeat_ms))
            if message.warning:
                self._do(Warn(message.warning))
        elif isinstance(message, m.Tasks):
            for task in message.added:
                self._add(task)
            for lost in message.lost:
                self._lose(lost)
            self.finished = self.finished or message.finished
        elif isinstance(message, m.Refused):
            self.fail(from_record(message.error))
        return self._take_actions()

    def fail(self, error: StokerError) -> None:
        """Nothing more can be read; what has arrived still can."""
        self._error = self._error or error

    def _add(self, task: m.TaskInfo) -> None:
        if task.task_id not in self.readers:
            self.readers[task.task_id] = Reader(task)
            self._connect(self.readers[task.task_id])

    def _lose(self, lost: m.TaskLost) -> None:
        reader = self.readers.setdefault(
            lost.task_id, Reader(m.TaskInfo(lost.task_id, lost.worker, {}))
        )
        if reader.over:
            return
        self._finish(reader)
        self.tasks_lost += 1
        self.splits_lost += lost.splits_begun
        of_splits = f" of the {lost.splits_begun} splits it had begun" if lost.splits_begun else ""
        self._do(
            Warn(
                f"worker {lost.worker} is gone: {lost.why}. Elements{of_splits} that had not "
                "arrived here are lost"
            )
        )

    # ── workers ───────────────────────────────────────────────────────────────────────────────────
    def connected(self, connection: int) -> list[Action]:
        """A worker was reached."""
        reader = self._by_connection.get(connection)
        client_id = self._hello.client_id
        if reader is not None and client_id is not None:
            hello = f.Hello(
                f.PROTOCOL_MIN, f.PROTOCOL_MAX, client_id, reader.task.task_id, reader.next_frame
            )
            self._do(ToWorker(connection, hello))
        return self._take_actions()

    def connection_lost(self, connection: int, why: str, now: float) -> list[Action]:
        """A worker could not be reached, or the connection broke."""
        reader = self._by_connection.pop(connection, None)
        if reader is not None:
            self._retry(reader, why, now)
        return self._take_actions()

    def worker_message(self, connection: int, message: f.Message, now: float) -> list[Action]:
        """A worker says something."""
        reader = self._by_connection.get(connection)
        if reader is None:
            return self._take_actions()
        if isinstance(message, f.Frame):
            self._receive(reader, message, now)
        elif isinstance(message, f.Welcome):
            reader.open, reader.attempts, reader.why = True, 0, ""
            self._report(reader)
        elif isinstance(message, f.Ready):
            self._report_all(self._windows.ready(reader.task.task_id, message.elements))
        elif isinstance(message, f.End):
            self._finish(reader)
        elif isinstance(message, f.Bye):
            why = "it closed the connection"
            if message.error is not None:
                why = message.error.message
            self._drop_connection(reader)
            self._retry(reader, why, now)
        return self._take_actions()

    def tick(self, now: float) -> list[Action]:
        """Time passed: tries again what broke, and gives up what is hopeless."""
        for reader in self.readers.values():
            if reader.connection is None and not reader.over and now >= reader.try_at:
                self._connect(reader)
        self._check_patience(now)
        return self._take_actions()

    def _receive(self, reader: Reader, frame: f.Frame, now: float) -> None:
        if frame.number == reader.next_frame:
            reader.next_frame += 1
            chunk = Chunk(reader.task.task_id, frame.number, frame.elements, frame.error)
            self._ready.append(chunk)
        elif frame.number > reader.next_frame:
            self._drop_connection(reader)
            self._retry(reader, f"frame {reader.next_frame} is missing", now)

    def _connect(self, reader: Reader) -> None:
        self._last_connection += 1
        reader.connection = self._last_connection
        self._by_connection[self._last_connection] = reader
        self._do(Connect(self._last_connection, reader.task))

    def _retry(self, reader: Reader, why: str, now: float) -> None:
        reader.connection, reader.open, reader.why = None, False, why
        delay = min(RECONNECT_FIRST * 2**reader.attempts, RECONNECT_LONGEST)
        reader.attempts += 1
        reader.try_at = now + delay * self._rng.uniform(0.5, 1.0)

    def _drop_connection(self, reader: Reader, farewell: bool = False) -> None:
        if reader.connection is not None:
            self._by_connection.pop(reader.connection, None)
            self._do(Disconnect(reader.connection, farewell))
            reader.connection, reader.open = None, False

    def _finish(self, reader: Reader) -> None:
        """Nothing more will be received; if all is consumed, the worker may forget the reading."""
        reader.over = True
        self._report_all(self._windows.gone(reader.task.task_id))
        self._let_go(reader)

    def _let_go(self, reader: Reader) -> None:
        """All of a task that is over has been consumed: the worker may forget the reading."""
        if reader.over and reader.consumed == reader.next_frame:
            self._say_goodbye(reader, 0)

    def _say_goodbye(self, reader: Reader, taken: int) -> None:
        if reader.open and reader.connection is not None:
            self._do(ToWorker(reader.connection, f.GiveBack(reader.consumed, taken)))
            self._drop_connection(reader, farewell=True)
        else:
            self._drop_connection(reader)

    # ── the user ──────────────────────────────────────────────────────────────────────────────────
    def take(self) -> tuple[Chunk | End | StokerError | None, list[Action]]:
        """The next chunk, taking the one before as consumed; ``None``: wait until something happens."""
        self._consume()
        if self._ready:
            self._current = self._ready.popleft()
        if not self._ready:
            for reader in self.readers.values():
                if reader.reported < reader.consumed:
                    self._report(reader)
        if self._current is not None:
            return self._current, self._take_actions()
        if self.finished and all(reader.over for reader in self.readers.values()):
            return End(), self._take_actions()
        if self._error is not None:
            return self._error, self._take_actions()
        return None, self._take_actions()

    def close(self, taken: int) -> list[Action]:
        """The user stops, having taken `taken` elements of the current chunk: the rest goes back."""
        current = self._current
        for reader in self.readers.values():
            mine = current is not None and current.task_id == reader.task.task_id
            self._say_goodbye(reader, taken if mine else 0)
            reader.over = True
        if current is not None:
            self.elements_delivered += min(taken, len(current.elements))
        self._do(ToDispatcher(m.ClientClose()))
        return self._take_actions()

    def waiting_for(self) -> str:
        """Whom a read waits for, as a sentence's end."""
        waiting = [
            f"worker {reader.task.worker}"
            + (f" ({reader.why})" if reader.why else "" if reader.open else " (connecting)")
            for reader in self.readers.values()
            if not reader.over
        ]
        if self._out_since is not None:
            return f"the dispatcher at {self._service}" + "".join(f", {x}" for x in waiting)
        return ", ".join(waiting) or "the dispatcher to find a worker for it"

    def _consume(self) -> None:
        chunk, self._current = self._current, None
        if chunk is None:
            return
        positions = len(chunk.elements) if chunk.error is None else 1
        self.elements_delivered += len(chunk.elements)
        reader = self.readers[chunk.task_id]
        reader.consumed = chunk.frame + 1
        grown = self._windows.consumed(chunk.task_id, positions)
        if reader.over:
            self._let_go(reader)
        elif self._windows.immediate or reader.consumed - reader.reported >= REPORT_FRAMES:
            self._report(reader)
        self._report_all(grown)

    # ── mechanics ─────────────────────────────────────────────────────────────────────────────────
    def _report(self, reader: Reader) -> None:
        """Tells the worker what is consumed and how much may be outstanding."""
        if reader.open and reader.connection is not None:
            window = self._windows.window(reader.task.task_id)
            self._do(ToWorker(reader.connection, f.Credit(reader.consumed, window, BYTES)))
            reader.reported = reader.consumed

    def _report_all(self, task_ids: Iterable[int]) -> None:
        for task_id in task_ids:
            self._report(self.readers[task_id])

    def _check_patience(self, now: float) -> None:
        """Gives up when there is no dispatcher and nobody to read from."""
        if self._out_since is None or self._error is not None:
            return
        out = now - self._out_since
        if self._hello.client_id is None:
            if out >= self._connect_timeout:
                self.fail(
                    UnavailableError(
                        f"no dispatcher answered at {self._service} within {out:.0f} s; start it "
                        "with `stoker dispatcher`, or correct the address"
                    )
                )
        elif out >= DISPATCHER_PATIENCE and not any(r.open for r in self.readers.values()):
            self.fail(
                UnavailableError(
                    f"the dispatcher at {self._service} has not answered for {out:.0f} s and no "
                    "worker can be read from; the rest of this iteration cannot be had"
                )
            )

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _take_actions(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions


def _resumed(hello: m.ClientHello, welcome: m.ClientWelcome) -> m.ClientHello:
    """What to say when the session is opened again."""
    return msgspec.structs.replace(
        hello, client_id=welcome.client_id, journal_id=welcome.journal_id
    )
