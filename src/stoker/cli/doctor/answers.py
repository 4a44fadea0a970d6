"""Answers of the dispatcher and of workers to probes, with round trip and clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stoker.service import messages as m
from stoker.wire import frames as f

ReplyT = TypeVar("ReplyT", m.ProbeReply, f.WorkerProbeReply)


@dataclass(frozen=True)
class Answer(Generic[ReplyT]):
    """The answer of a server to a probe.

    Attributes:
        reply: as received.
        round_trip: seconds.
        clock_offset: seconds by which the server's clock is ahead of this machine's.
    """

    reply: ReplyT
    round_trip: float
    clock_offset: float


def timed(ask: Callable[[], ReplyT], clock: Callable[[], float]) -> Answer[ReplyT]:
    """Return the answer that `ask` gets; `clock` is the time of day of this machine."""
    began, asked = time.monotonic(), clock()
    reply = ask()
    # As in NTP: the server reads its clock half a round trip after the question, on average.
    return Answer(reply, time.monotonic() - began, reply.clock - (asked + clock()) / 2)


def mismatch(
    reply: m.ProbeReply | f.WorkerProbeReply, protocol: str, here: tuple[int, int]
) -> dict[str, Any]:
    """Return the versions of a protocol there and here if no version is common."""
    first, last = here
    # The ranges of both sides overlap.
    if first <= reply.protocol_max and reply.protocol_min <= last:
        return {}
    return {"reply": reply, "protocol": protocol, "first": first, "last": last}
