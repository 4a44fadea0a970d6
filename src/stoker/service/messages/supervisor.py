"""Messages of a supervisor's session: first those that it sends, then the one it receives."""

from typing import TypeAlias

from stoker.dataset.streams.calls.call_ranges import NO_DIGEST, CallRange
from stoker.service.messages.session import DispatcherMessage, JournalPosition, Message


class SupervisorHello(Message, frozen=True, tag=True):
    """First message of a process that runs workers in child processes."""

    protocol_min: int
    protocol_max: int
    journal_position: JournalPosition | None = None


# A function that holds the GIL stops the heartbeats of its process, but not its parent.
# (docs/decisions/006)
class KeepAlive(Message, frozen=True, tag=True):
    """Renew the leases of active child processes, even if a function holds the GIL of one.

    `workers` maps the id of each to its key.
    """

    workers: dict[int, bytes]


# The parent sees the death immediately, the dispatcher at the end of the lease.
class WorkerDied(Message, frozen=True, tag=True):
    """A child process died; `how` completes "worker ... was lost: ", `key` is the worker's.

    `calls`: the calls of user functions in flight, by task, if they may be the cause. `alone`: the
    digest of the element of the only one, if that ran alone.
    """

    worker_id: int
    how: str
    key: bytes
    calls: dict[int, list[CallRange]] = {}
    alone: int = NO_DIGEST


class SupervisorWelcome(DispatcherMessage, frozen=True, tag=True):
    """The session is open; send `KeepAlive` every `heartbeat_ms`, for leases of `lease_ms`."""

    protocol: int
    journal_id: str
    heartbeat_ms: int
    lease_ms: int


FromSupervisor: TypeAlias = SupervisorHello | KeepAlive | WorkerDied
