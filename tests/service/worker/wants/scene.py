"""A worker's logic with one task by position, and the messages of its clients."""

from typing import Any

from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.keys import reader_key
from stoker.service.worker import actions as a
from stoker.service.worker import logic as w
from stoker.wire import frames as f

TASK = 20
LENGTH = 1000
BUFFER_BYTES = 1000
UNLIMITED = 1 << 40


def start(length: int = LENGTH, task: int = TASK) -> m.TaskStart:
    return m.TaskStart(task, 30, "dataset", 1, (0,), m.PositionTask(length=length))


def want(
    needed: int = 0,
    *ranges: f.Positions,
    limit: int = UNLIMITED,
    nbytes: int = UNLIMITED,
    cancelled: tuple[f.Positions, ...] = (),
) -> f.Want:
    return f.Want(needed, limit, nbytes, list(ranges), list(cancelled))


class Scene:
    """A worker whose pipeline computes element k as 10 * k, of `element_bytes` bytes.

    Attributes:
        worker: its logic.
        turns: those that the pipeline was given and has not computed.
        said: the actions of the last call.
        got: connection → the elements that arrived, as ``(position, element)``.
        messages: all that were sent to clients.
        byes: connection → the code of the error of its end.
        asks: the pipeline waits for a turn.
    """

    def __init__(
        self, length: int = LENGTH, buffer_bytes: int = BUFFER_BYTES, element_bytes: int = 10
    ) -> None:
        hello = m.WorkerHello(1, 1, "here:1", {"tcp": "here:1"}, m.Versions("3.11", "2"))
        self.worker = w.Worker(hello, buffer_bytes)
        self.worker.session_opened()
        self.element_bytes = element_bytes
        self.turns: list[range] = []
        self.said: list[a.Action] = []
        self.got: dict[int, list[tuple[int, Any]]] = {}
        self.frames: list[tuple[int, f.Frame]] = []
        self.byes: dict[int, str] = {}
        self.messages: list[f.Message] = []
        self.asks = False
        self.do(self.worker.session_message(m.WorkerWelcome(1, 7, "journal", 1000), 0.0))
        self.do(self.worker.session_message(start(length), 0.0))

    def do(self, actions: list[a.Action]) -> list[a.Action]:
        """Execute actions."""
        self.said = actions
        for action in actions:
            if isinstance(action, a.GiveTurn):
                assert self.asks, "a turn that nobody asked for"
                self.asks = False
                self.turns.append(action.turn)
            elif isinstance(action, a.SendToClient):
                self._receive(action.connection, action.message)
        return actions

    def _receive(self, connection: int, message: f.Message) -> None:
        self.messages.append(message)
        if isinstance(message, f.Frame):
            self.frames.append((connection, message))
            places = [
                first + k * step for first, count, step in message.positions for k in range(count)
            ]
            elements = message.elements if message.error is None else [message.error]
            assert len(places) == len(elements)
            self.got.setdefault(connection, []).extend(zip(places, elements, strict=True))
        elif isinstance(message, f.Bye):
            self.byes[connection] = "" if message.error is None else message.error.code

    def connect(self, connection: int = 1, client: int = 40, attempt: int = 1) -> None:
        """Let a client connect."""
        key = reader_key(b"", client)
        hello = f.Hello(1, 1, client, TASK, 0, attempt=attempt, key=key, reports=True)
        self.say(hello, connection)

    def say(self, message: f.Message, connection: int = 1) -> list[a.Action]:
        """Send a message of a client."""
        return self.do(self.worker.client_message(connection, message, 0.0))

    def ask(self) -> range | None:
        """Let the pipeline ask for a turn, and return it if it need not wait."""
        if not self.asks:
            self.asks = True
            before = len(self.turns)
            self.do(self.worker.need_turn(TASK))
            return self.turns[-1] if len(self.turns) > before else None
        return None

    def produce(self, count: int | None = None) -> bool:
        """Compute positions of the first turn; return whether there is room for more."""
        turn = self.turns.pop(0)
        part, rest = turn[:count], turn[len(turn[:count]) :]
        if rest:
            self.turns.insert(0, rest)
        elements = [10 * k for k in part]
        chunk = Chunk(elements, self.element_bytes * len(elements), spans=(part,))
        self.do(self.worker.produced(TASK, chunk))
        return self.worker.may_produce(TASK)

    def fail(self, text: str = "no") -> None:
        """Let the next position of the first turn be an error."""
        turn = self.turns.pop(0)
        if turn[1:]:
            self.turns.insert(0, turn[1:])
        error = ErrorRecord("UserFunctionError", text)
        self.do(self.worker.produced(TASK, Chunk([], 5, error, spans=(turn[:1],))))

    def compute(self, calls: int = 1000) -> None:
        """Compute turns until the pipeline waits."""
        for _ in range(calls):
            if self.turns:
                if not self.produce():
                    return
            elif self.ask() is None:
                return

    def places(self, connection: int = 1) -> list[int]:
        """Return the positions that arrived, whose elements are right."""
        found = self.got.get(connection, [])
        assert all(element == 10 * place for place, element in found)
        return [place for place, _ in found]

    @property
    def task(self) -> Any:
        return self.worker.tasks[TASK]

    def progress(self) -> list[m.TaskProgress]:
        sent = [x.message for x in self.said if isinstance(x, a.SendToDispatcher)]
        return [x for x in sent if isinstance(x, m.TaskProgress)]
