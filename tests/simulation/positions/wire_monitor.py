"""Check what is said on the data connections of a worker in a deterministic epoch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stoker.wire import frames as f
from tests.simulation.positions.epoch import CHUNK_POSITIONS, EpochPlan

NOTHING = f.Want(0, 0, 0)


@dataclass
class _Connection:
    """One connection of a client.

    Attributes:
        want: the latest `Want`.
        wanted: the positions that were asked for and not sent, in their order.
        unread: the positions that were sent and that the client has not consumed.
    """

    want: f.Want = NOTHING
    wanted: dict[int, None] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)


class WireMonitor:
    """Checks that clients ask for what they may ask for, and the worker sends what it may send.

    Args:
        name: names the worker.
        plan: the epoch.

    Attributes:
        found: the violations, as sentences.
    """

    def __init__(self, name: str, plan: EpochPlan) -> None:
        self.found: list[str] = []
        self._name, self._plan = name, plan
        # A worker knows the size of a chunk, not those of its elements.
        is_exact = len(set(map(plan.nbytes, range(plan.stop)))) <= 1
        self._inexact = 0 if is_exact else CHUNK_POSITIONS * plan.largest
        self._connections: dict[int, _Connection] = {}

    def received(self, number: int, message: f.Message) -> None:
        """Check a message of a client."""
        if isinstance(message, f.Hello):
            self._connections[number] = _Connection()
        elif isinstance(message, f.Want):
            self._asked(self._connections[number], message)

    def sent(self, number: int, message: f.Message) -> None:
        """Check a message to a client."""
        if isinstance(message, f.Frame):
            self._check_frame(self._connections[number], message)
        elif isinstance(message, f.Bye):
            error = message.error
            if error is not None and error.code == "InvalidArgumentError":
                self._add(f"refused a request: {error.message}")

    def _asked(self, connection: _Connection, want: f.Want) -> None:
        if want.needed < connection.want.needed:
            self._add(f"was asked for {want.needed} after {connection.want.needed} was needed")
        for position in _positions(want.cancelled):
            connection.wanted.pop(position, None)
        for position in _positions(want.ranges):
            if position in connection.wanted:
                self._add(f"was asked for {position} again")
            if position >= self._plan.length:
                self._add(f"was asked for {position} of {self._plan.length}")
            connection.wanted[position] = None
        connection.want = want
        for position in [x for x in connection.wanted if x < want.needed]:
            del connection.wanted[position]
        connection.unread = {x for x in connection.unread if x >= want.needed}

    def _check_frame(self, connection: _Connection, frame: f.Frame) -> None:
        want, positions = connection.want, list(_positions(frame.positions))
        if frame.error is None and positions != frame.elements:
            self._add(f"sent {frame.elements} as {positions}")
        unread = sum(map(self._plan.nbytes, connection.unread))
        if positions[0] != want.needed and unread >= want.bytes + self._inexact:
            self._add(f"sent {positions} after {unread} unread bytes of {want.bytes}")
        for position in positions:
            if position not in connection.wanted:
                self._add(f"sent {position}, which is not wanted")
            if position >= want.limit and position != want.needed:
                self._add(f"sent {position}, which is not before {want.limit}")
            connection.wanted.pop(position, None)
            connection.unread.add(position)

    def _add(self, text: str) -> None:
        self.found.append(f"{self._name} {text}")


def _positions(ranges: Iterable[f.Positions]) -> Iterator[int]:
    for first, count, step in ranges:
        yield from range(first, first + count * step, step)
