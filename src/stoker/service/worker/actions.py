"""Actions that the worker's logic returns to its shell."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from stoker.service import messages as m
from stoker.wire import frames as f


@dataclass(frozen=True)
class SendToDispatcher:
    """Send `message` on the session; it is dropped if the session is broken."""

    message: m.FromWorker


@dataclass(frozen=True)
class SendToClient:
    """Send `message` on a data connection."""

    connection: int
    message: f.Message


@dataclass(frozen=True)
class CloseConnection:
    """Close a data connection after the messages sent on it."""

    connection: int


@dataclass(frozen=True)
class OpenTask:
    """Open the task's pipeline and start to produce."""

    start: m.TaskStart


@dataclass(frozen=True)
class ClosePipeline:
    """Close the task's pipeline; what it has computed may still be delivered."""

    task_id: int


@dataclass(frozen=True)
class DrainPipeline:
    """Tell the task's pipeline that no epoch of its sources gets more splits."""

    task_id: int


@dataclass(frozen=True)
class Produce:
    """Continue to produce: the task's buffer has room again."""

    task_id: int


@dataclass(frozen=True)
class GiveSplit:
    """Give a waiting source its next split; `split` is ``[value]``, or ``[]`` at the end."""

    task_id: int
    source: int
    source_epoch: int
    split: list[Any]


@dataclass(frozen=True)
class GiveFiles:
    """Give a waiting source files of its shard."""

    page: m.ShardPage


@dataclass(frozen=True)
class GiveTurn:
    """Give a waiting source the positions of the epoch that the pipeline computes next."""

    task_id: int
    turn: range


@dataclass(frozen=True)
class StartListing:
    """Send the page of a list of splits that `request` asks for; list them first."""

    request: m.ListSplits


@dataclass(frozen=True)
class CloseListing:
    """Drop a list of splits."""

    listing_id: int


@dataclass(frozen=True)
class SetHeartbeatInterval:
    """Send heartbeats every `milliseconds`."""

    milliseconds: int


@dataclass(frozen=True)
class StopDrained:
    """Stop the worker once it is drained: an operator asked for it."""


PipelineAction: TypeAlias = (
    OpenTask | ClosePipeline | DrainPipeline | Produce | GiveSplit | GiveFiles | GiveTurn
)

Action: TypeAlias = (
    SendToDispatcher
    | SendToClient
    | CloseConnection
    | PipelineAction
    | StartListing
    | CloseListing
    | SetHeartbeatInterval
    | StopDrained
)
