"""What the worker's logic tells its shell to do."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from stoker.service import messages as m
from stoker.wire import frames as f


@dataclass(frozen=True)
class ToDispatcher:
    """Say `message` on the session; it is dropped if the session is broken."""

    message: m.FromWorker


@dataclass(frozen=True)
class ToClient:
    """Send `message` on a data connection."""

    connection: int
    message: f.Message


@dataclass(frozen=True)
class HangUp:
    """Close a data connection, after what was sent on it."""

    connection: int


@dataclass(frozen=True)
class OpenTask:
    """Open the task's pipeline and begin to produce."""

    start: m.TaskStart


@dataclass(frozen=True)
class CloseTask:
    """Close the task's pipeline."""

    task_id: int


@dataclass(frozen=True)
class Produce:
    """The task's buffer has room again."""

    task_id: int


@dataclass(frozen=True)
class GiveSplit:
    """Hand a waiting source what it reads next; `split` is ``[]`` at the end, else one value."""

    task_id: int
    source: int
    source_epoch: int
    split: list[Any]


@dataclass(frozen=True)
class ListSources:
    """List the splits that `request` asks for and report them."""

    request: m.ListSplits


@dataclass(frozen=True)
class SetHeartbeat:
    """Send a heartbeat at least so often."""

    milliseconds: int


Action: TypeAlias = (
    ToDispatcher
    | ToClient
    | HangUp
    | OpenTask
    | CloseTask
    | Produce
    | GiveSplit
    | ListSources
    | SetHeartbeat
)
