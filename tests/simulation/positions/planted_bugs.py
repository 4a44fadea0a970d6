"""Bugs of deterministic epochs that the simulation must find; see `planted_bugs.planted`."""

from typing import Any
from unittest import mock

from stoker.service.client import logic
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.client.orders.position_order import PositionOrder
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.service.client.wants.scheduler import Scheduler
from stoker.service.worker.wants.position_reader import PositionReader
from stoker.wire.frames import Want


def _lost_turn_not_asked_again() -> Any:
    """What was asked of a worker that is lost is not asked of another."""

    def planted(self: Scheduler, number: int) -> None:
        self.workers.pop(number, None)

    return mock.patch.object(Scheduler, "lost", planted)


def _repeated_piece_kept() -> Any:
    """Elements that have arrived before are kept again."""
    put = PositionOrder.put

    def planted(self: PositionOrder, chunk: ReceivedChunk) -> int:
        for start, stop in self.spans(chunk):
            self._arrived.remove(start, stop)
        return put(self, chunk)

    return mock.patch.object(PositionOrder, "put", planted)


def _late_piece_accepted() -> Any:
    """A worker sends what was computed for an earlier connection of a client on the next."""

    def planted(self: PositionReader) -> None:
        if not hasattr(self, "_newest"):
            forget(self)
        self._newest = Want(0, 0, 0)

    forget = PositionReader._forget
    return mock.patch.object(PositionReader, "_forget", planted)


def _no_room_for_needed() -> Any:
    """A worker whose buffer is full computes nothing, though a client waits for a position."""
    return mock.patch.object(PositionReader, "lacks_needed", False)


def _no_credit_for_needed() -> Any:
    """A worker does not send the next position while a client has as many bytes as it may."""
    room: Any = PositionReader.room

    def planted(self: PositionReader) -> tuple[int, int]:
        elements, _ = room.fget(self)
        return elements, min(self._newest.bytes, self._max_bytes) - self.kept_bytes

    return mock.patch.object(PositionReader, "room", property(planted))


def _base_forgotten() -> Any:
    """Consumers whose number has changed read the epoch from its beginning."""

    def planted(self: EpochShare, element: int) -> int:
        return self.index + element * self.count

    return mock.patch.object(EpochShare, "position", planted)


def _resumed_one_late() -> Any:
    """A consumer that resumes leaves out an element."""
    advance = logic.Client.advance

    def planted(self: logic.Client, elements: int) -> int | None:
        return advance(self, elements + 1)

    return mock.patch.object(logic.Client, "advance", planted)


BUGS = {
    "lost-turn-not-asked-again": _lost_turn_not_asked_again,
    "repeated-piece-kept": _repeated_piece_kept,
    "late-piece-accepted": _late_piece_accepted,
    "no-room-for-needed": _no_room_for_needed,
    "no-credit-for-needed": _no_credit_for_needed,
    "base-forgotten": _base_forgotten,
    "resumed-one-late": _resumed_one_late,
}
"""By their names."""
