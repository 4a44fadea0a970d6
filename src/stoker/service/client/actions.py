"""What the client's logic tells its shell to do."""

from dataclasses import dataclass
from typing import TypeAlias

from stoker.service import messages as m
from stoker.wire import frames as f


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
