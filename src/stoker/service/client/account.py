"""What one worker has been granted, and what is known to have come of it."""

import math
from collections import deque
from dataclasses import dataclass, field

BYTES = 64 << 20
"""Bytes that may be under way from one worker, at most, about."""

GRANTS = 8
"""Credits that are told apart; where bytes are the limit, elements may lie far ahead."""


@dataclass(frozen=True)
class Grant:
    """One `Credit` that was sent.

    Attributes:
        before: how many elements the worker might send without it.
        nbytes: how many bytes it allows.
        at: when it was sent.
    """

    before: int
    nbytes: int
    at: float


@dataclass
class Account:
    """A task's credit on its present connection.

    Elements are counted from the beginning of the connection, so that no message can be
    misunderstood that crossed another.

    Attributes:
        granted: how many elements the worker may send in all.
        window: how many of them were not taken when it was told so.
        nbytes: how many bytes may be under way, as it was told.
        most_bytes: how many there ever may be.
        received: how many have come.
        held: how many have come, on any connection, and are not taken.
        unreported: how many were taken since the worker was told last.
        unreported_bytes: about how many bytes these had.
        live: the worker may have something to send.
        supply: how many were taken lately.
        reserved: the bytes that may be under way or held here, at most.
        round_trip: the shortest time from a credit to what was sent on it, in seconds.
    """

    granted: int = 0
    window: int = 0
    nbytes: int = 0
    most_bytes: int = BYTES
    received: int = 0
    held: int = 0
    unreported: int = 0
    unreported_bytes: int = 0
    live: bool = False
    supply: float = 0.0
    reserved: int = 0
    round_trip: float = math.inf
    _grants: deque[Grant] = field(default_factory=deque)

    def open(self, most_bytes: int) -> None:
        """A new connection: nothing is granted, what is held stays."""
        self.most_bytes = min(BYTES, most_bytes or BYTES)
        self.gone()
        self.granted = self.received = self.unreported = self.unreported_bytes = 0
        self.live = True

    def gone(self) -> None:
        """The connection is over: only what has come is still here."""
        self.live = False
        self._grants = deque([Grant(0, self.reserved, 0.0)] if self.held else [])
        self._reserve()

    def grant(self, elements: int, nbytes: int, now: float) -> None:
        """A `Credit` is sent."""
        self.nbytes = nbytes
        if len(self._grants) == GRANTS:
            nbytes = max(nbytes, self._grants.pop().nbytes)
        self._grants.append(Grant(self.granted, nbytes, now))
        self.granted = elements
        self.window = elements - self.received + self.held
        self.unreported = self.unreported_bytes = 0
        self._reserve()

    def receive(self, elements: int, now: float) -> float:
        """Elements have come.

        Those beyond what a credit found granted show that the worker has read it, and keeps to it
        since: what earlier ones allowed is history. That way nobody need say so.

        Returns:
            How long the worker had to wait for credit, having used up what it had: seconds, at most
            a round trip; 0 if it had some left. What was sent as soon as credit can have reached
            the worker was waiting for it.
        """
        since = [now - grant.at for grant in self._grants if grant.before == self.received]
        late = since[-1] if since else math.inf
        self.round_trip = min(self.round_trip, late)
        self.live = True
        self.held += elements
        self.returned(elements)
        self._reserve()
        return self.round_trip if late <= 2 * self.round_trip else 0.0

    def returned(self, elements: int) -> None:
        """Credit for so many elements is used up."""
        self.received += elements
        while len(self._grants) > 1 and self.received > self._grants[1].before:
            self._grants.popleft()

    def take(self, elements: int, nbytes: int) -> None:
        """The user has taken elements, of about so many bytes."""
        self.held -= elements
        self.unreported += elements
        self.unreported_bytes += nbytes
        self.supply += elements
        if not self.held and not self.live:
            self._reserve()

    def due(self, elements: int, nbytes: int, parts: int) -> bool:
        """Whether, with so much more taken, one of `parts` of what may be under way is unreported.

        A quarter is reported when there is occasion: earlier would cost messages. A half is urgent:
        the worker might have to wait.
        """
        return (
            parts * (self.unreported + elements) >= self.window
            or parts * (self.unreported_bytes + nbytes) >= self.nbytes
        )

    def end(self) -> None:
        """The worker says that there is no more."""
        self.live = False
        self._reserve()

    def _reserve(self) -> None:
        if self.live or self.held:
            self.reserved = max((grant.nbytes for grant in self._grants), default=0)
        else:
            self.reserved = 0
