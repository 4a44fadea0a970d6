"""Messages that workers and clients share, and the base of all."""

from typing import Annotated, TypeAlias

import msgspec

from stoker.errors import ErrorRecord
from stoker.service.loading import Loading

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""A number that a worker or client reports: up to 9 PB in bytes, so that sums of a thousand of them
fit into the 64 bits of a message. The decoder refuses others."""


# Most fields of most messages have their default, which is not sent: a heartbeat may have 16 bytes.
class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Base of all control messages."""


class JournalPosition(msgspec.Struct, frozen=True, array_like=True):
    """Position in the dispatcher's journal, which was durable before it was sent.

    `boot` identifies the process of the dispatcher that wrote the unit at `position`. `signature`
    is `position_signature`, so that nobody else can name a position.
    """

    journal_id: str
    boot: int
    position: int
    signature: bytes


class DispatcherMessage(Message, frozen=True, kw_only=True):
    """Base of the messages of sessions that the dispatcher sends.

    `journal_position` covers all records that the message depends on. The receiver keeps the last
    one that is not ``None`` for the hello of its next session, by which a dispatcher learns that
    its journal has lost records.
    """

    journal_position: JournalPosition | None = None


# Totals, not differences: a report that is lost with its session changes nothing.
# (docs/decisions/069)
class TaskReport(msgspec.Struct, frozen=True):
    """Totals of a task on its worker.

    `elements` that it has computed, of about `bytes`, and `errors` in place of elements.
    """

    elements: Count
    bytes: Count
    errors: Count = 0


class ReadReport(msgspec.Struct, frozen=True):
    """Totals of a client.

    The user has consumed `elements`, of about `bytes`, and waited for them for `waited` of
    `elapsed` seconds. `bottleneck` is the kind of what is slow, `sentence` says it to the user.
    `position`: of a deterministic epoch, that the user consumes next.
    """

    elements: Count
    bytes: Count
    waited: float
    elapsed: float
    bottleneck: str = ""
    sentence: str = ""
    position: Count | None = None


class Heartbeat(Message, frozen=True, tag=True):
    """Renew the sender's lease, and report what it has done.

    From a worker: `tasks` that have computed anything since its last heartbeat of this session, its
    `uptime` in seconds, and `loading` of the task that has waited longest for its functions. From a
    client: `reading`.
    """

    tasks: dict[int, TaskReport] = {}
    uptime: float | None = None
    reading: ReadReport | None = None
    loading: Loading | None = None


class HeartbeatInterval(DispatcherMessage, frozen=True, tag=True):
    """Send heartbeats at this interval from now on; it follows the number of leases."""

    heartbeat_ms: int


class Refused(DispatcherMessage, frozen=True, tag=True):
    """The session or the whole iteration has failed."""

    error: ErrorRecord
