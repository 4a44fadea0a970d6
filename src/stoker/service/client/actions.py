"""Actions that the client's logic returns to its shell."""

from dataclasses import dataclass
from typing import TypeAlias

from stoker.service import messages as m
from stoker.wire import frames as f


@dataclass(frozen=True)
class ToDispatcher:
    """Send `message` on the session; it is dropped if the session is broken."""

    message: m.FromClient


@dataclass(frozen=True)
class Connect:
    """Connect to the worker that runs `task`; report `connected` or `connection_lost`."""

    connection: int
    task: m.TaskInfo


@dataclass(frozen=True)
class ToWorker:
    """Send `message` on a data connection."""

    connection: int
    message: f.Message


@dataclass(frozen=True)
class Disconnect:
    """Close a data connection; with `farewell`, after the worker has sent `Bye` to a `GiveBack`."""

    connection: int
    farewell: bool = False


@dataclass(frozen=True)
class SetHeartbeat:
    """Send heartbeats every `milliseconds`."""

    milliseconds: int


@dataclass(frozen=True)
class Warn:
    """Log a warning for the user."""

    text: str


Action: TypeAlias = ToDispatcher | Connect | ToWorker | Disconnect | SetHeartbeat | Warn
