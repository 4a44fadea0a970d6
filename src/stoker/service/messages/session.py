"""Messages that workers and clients share, and the base of all."""

import msgspec

from stoker.errors import ErrorRecord

__all__ = [
    "PROTOCOL_MAX",
    "PROTOCOL_MIN",
    "Heartbeat",
    "HeartbeatInterval",
    "Message",
    "ReadReport",
    "Refused",
    "TaskReport",
]


PROTOCOL_MIN = 1
PROTOCOL_MAX = 1


class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Base of all control messages."""


class TaskReport(msgspec.Struct, frozen=True):
    """Totals of a task on its worker.

    `elements` that it has computed, of about `bytes`, and `errors` in place of elements.
    """

    elements: int
    bytes: int
    errors: int = 0


class ReadReport(msgspec.Struct, frozen=True):
    """Totals of a client.

    The user has consumed `elements`, of about `bytes`, and waited for them for `waited` of
    `elapsed` seconds. `bottleneck` is the kind of what is slow, `sentence` says it to the user.
    """

    elements: int
    bytes: int
    waited: float
    elapsed: float
    bottleneck: str = ""
    sentence: str = ""


class Heartbeat(Message, frozen=True, tag=True):
    """Renew the sender's lease, and report what it has done.

    From a worker: `tasks` that have computed anything since its last heartbeat of this session, and
    its `uptime` in seconds. From a client: `reading`.
    """

    tasks: dict[int, TaskReport] = {}
    uptime: float | None = None
    reading: ReadReport | None = None


class HeartbeatInterval(Message, frozen=True, tag=True):
    """Send heartbeats at this interval from now on; it follows the number of leases."""

    heartbeat_ms: int


class Refused(Message, frozen=True, tag=True):
    """The session or the whole iteration has failed."""

    error: ErrorRecord
