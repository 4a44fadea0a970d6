"""A simulated clock and network; one random generator draws all delays.

A `Link` is one connection. Each direction is first in, first out, with a delay for each message. A
link that breaks loses the last messages in flight; each side notices after its own delay. While a
direction between two hosts is blocked, its messages are kept, as TCP does; a side that hears
nothing for its peer timeout ends the link.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any, Protocol

SCAN_SECONDS = 0.1
"""Interval at which silent links are searched."""

_END = object()
"""The message by which a side learns that the other has closed the link."""


class World:
    """Simulated time, the order of events, and the trace of messages.

    Args:
        rng: generates all delays.
        trace: receives the trace, if there is one.
        peer_timeout: seconds after which a side ends a link on which it hears nothing.
    """

    def __init__(
        self,
        rng: random.Random,
        trace: list[str] | None = None,
        peer_timeout: float = 10.0,
    ) -> None:
        self.rng = rng
        self.now = 0.0
        self._trace = trace
        self.links: list[Link] = []
        self.peer_timeout = peer_timeout
        self._blocked: dict[tuple[str, str], tuple[float, float]] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._scans_until = -1.0

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Schedule `event` at `time`."""
        heapq.heappush(self._events, (time, next(self._order), event))

    def after(self, delay: float, event: Callable[[], None]) -> None:
        """Schedule `event` after `delay` seconds."""
        self.at(self.now + delay, event)

    def every(self, interval: float, event: Callable[[], None], while_: Callable[[], bool]) -> None:
        """Schedule `event` every `interval` seconds while `while_` returns true."""

        def step() -> None:
            if while_():
                event()
                self.after(interval, step)

        self.after(interval * self.rng.random(), step)

    def run(self, done: Callable[[], bool], until: float) -> bool:
        """Run events until `done` or time `until`; return whether `done` came first."""
        while not done():
            if not self._events or self._events[0][0] > until:
                return False
            self.now, _, event = heapq.heappop(self._events)
            event()
        return True

    def note(self, text: str) -> None:
        """Append a line to the trace."""
        if self._trace is not None:
            self._trace.append(f"{self.now:9.4f}  {text}")

    # ── partitions ────────────────────────────────────────────────────────────────────────────────
    def block(self, source: str, target: str, seconds: float) -> None:
        """Keep all that host `source` sends to host `target` for `seconds`."""
        since, until = self._blocked.get((source, target), (self.now, self.now))
        until = max(until, self.now + seconds)
        self._blocked[source, target] = since, until
        self.note(f"       {source} ⇥ {target} blocked for {seconds:.2f} s")
        self.after(seconds, lambda: self._unblock(source, target))
        self.scan_until(until)

    def is_blocked(self, source: str, target: str) -> bool:
        """Return whether messages from `source` do not reach `target`."""
        return (source, target) in self._blocked

    def blocked_since(self, source: str, target: str) -> float | None:
        """Return the time since which messages from `source` do not reach `target`."""
        found = self._blocked.get((source, target))
        return None if found is None else found[0]

    def _unblock(self, source: str, target: str) -> None:
        if self._blocked[source, target][1] > self.now:
            return
        del self._blocked[source, target]
        self.note(f"       {source} → {target} unblocked")
        for link in list(self.links):
            for side in link.sides:
                if (side.process.host, side.other.process.host) == (source, target):
                    side.deliver_kept()

    def scan_until(self, until: float) -> None:
        """Search for silent links until `until`, and for as long as one may be noticed then."""
        if self._scans_until < self.now:
            self.after(SCAN_SECONDS, self._scan)
        self._scans_until = max(self._scans_until, until)

    def _scan(self) -> None:
        self.links = [link for link in self.links if not link.ended]
        for link in list(self.links):
            link.end_if_silent()
        if self.now <= self._scans_until:
            self.after(SCAN_SECONDS, self._scan)


class Endpoint(Protocol):
    """The process at one end of a link, as the network knows it; see `process.Process`."""

    name: str
    host: str
    alive: bool
    frozen_since: float | None

    def run(self, event: Callable[[], None], source: object = None) -> None:
        """Run an event after all of its source that waits in the process."""

    def run_if_awake(self, event: Callable[[], None]) -> None:
        """Run a timer unless the process is frozen."""


class Listener(Protocol):
    """Receiver of one side of a link."""

    def received(self, message: Any) -> None:
        """Handle a message of the other side."""

    def lost(self) -> None:
        """Handle the end of the link; nothing more will be received."""


class Side:
    """One end of a link.

    Attributes:
        open: this end has neither closed the link nor noticed its end.
        cut: number of the first message of this side that is lost; ``None`` if none is.
    """

    def __init__(self, link: "Link", process: Endpoint) -> None:
        self.link = link
        self.process = process
        self.open = True
        self.listener: Listener | None = None
        self.sent = 0
        self.delivered = 0
        self.cut: int | None = None
        self._last_time = 0.0
        self._kept: list[tuple[int, Any]] = []
        self._patience = link.world.peer_timeout * link.world.rng.uniform(1.0, 1.15)

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def other(self) -> "Side":
        return self.link.sides[self is self.link.sides[0]]

    def send(self, message: Any) -> None:
        """Send `message` to the other side; a broken link loses it."""
        if not self.open or self.cut is not None:
            return
        world = self.link.world
        number, self.sent = self.sent, self.sent + 1
        self._last_time = max(self._last_time, world.now + self.link.delay())
        world.at(self._last_time, lambda: self._arrive(number, message))

    def close(self) -> None:
        """Close the link; the other side notices after all messages sent before."""
        if self.open:
            self.send(_END)
            self.open = False

    def learn(self) -> None:
        """Notice the end of the link on this side."""
        if self.open:
            self.open = False
            self.link.world.note(f"{self.name} ✂ {self.other.name}")
            if self.listener is not None:
                self.listener.lost()

    def time_out(self) -> None:
        """End the link because the other side is silent."""
        if not self.open:
            return
        world = self.link.world
        if self.cut is None and world.rng.random() < 0.5:  # what was not acknowledged is lost
            self.cut = self.delivered
        self._last_time = max(self._last_time, world.now + self.link.delay())
        world.at(self._last_time, lambda: self._arrive(-1, _END))  # never lost: repeated until then
        self.learn()

    def learn_later(self) -> None:
        """Notice the end of the link after all that has arrived."""
        self.process.run(self.learn, self.link)

    def is_silent(self, opened: float) -> bool:
        """Return whether nothing of the other side has come for the peer timeout."""
        world, mine, other = self.link.world, self.process.host, self.other.process
        since = [
            other.frozen_since,
            world.blocked_since(mine, other.host),
            world.blocked_since(other.host, mine),
        ]
        return any(x is not None and world.now - max(x, opened) > self._patience for x in since)

    def deliver_kept(self) -> None:
        """Deliver what was kept while this direction was blocked."""
        kept, self._kept = self._kept, []
        for number, message in kept:
            self._arrive(number, message)

    def _arrive(self, number: int, message: Any) -> None:
        """Hand a message to the host of the other side, whose process may be frozen."""
        if self.link.world.is_blocked(self.process.host, self.other.process.host):
            self._kept.append((number, message))
            return
        self.delivered = max(self.delivered, number + 1)
        if self.cut is None or number < self.cut:
            target = self.other
            target.process.run(lambda: target.receive(message), self.link)

    def receive(self, message: Any) -> None:
        """Handle a message in the process of this side."""
        if message is _END:
            self.learn()
        elif self.open and self.listener is not None:
            self.link.world.note(f"{self.other.name} → {self.name}  {message}")
            self.listener.received(message)


class Link:
    """One connection between two processes."""

    def __init__(
        self, world: World, processes: tuple[Endpoint, Endpoint], slowest: float = 0.2
    ) -> None:
        self.world = world
        self.slowest = slowest
        self.sides = (Side(self, processes[0]), Side(self, processes[1]))
        self._opened = world.now
        world.links = [link for link in world.links if not link.ended]
        world.links.append(self)

    @property
    def alive(self) -> bool:
        return all(side.open and side.cut is None for side in self.sides)

    @property
    def ended(self) -> bool:
        """True once neither side is open in a living process."""
        return not any(side.open and side.process.alive for side in self.sides)

    def delay(self) -> float:
        """Return the delay of one message: mostly short, sometimes long."""
        rng = self.world.rng
        return rng.uniform(0.0005, self.slowest if rng.random() < 0.1 else 0.005)

    def break_(self, noticed: tuple[float, float]) -> None:
        """Break the link: some messages in flight arrive, then each side notices with a delay."""
        if not self.alive:
            return
        self.world.note(f"       {self.sides[0].name} ⚡ {self.sides[1].name}")
        for side in self.sides:
            side.cut = self.world.rng.randint(side.delivered, side.sent)
        for side, seconds in zip(self.sides, noticed, strict=True):
            self.world.after(seconds, side.learn_later)

    def end_if_silent(self) -> None:
        """Let each side that hears nothing for its peer timeout end the link."""
        for side in self.sides:
            if side.open and side.is_silent(self._opened):
                side.process.run_if_awake(side.time_out)


def can_connect(source: Endpoint, target: Endpoint, world: World) -> bool:
    """Return whether `source` can open a link: the host of a frozen process accepts it."""
    there, back = (source.host, target.host), (target.host, source.host)
    return target.alive and not world.is_blocked(*there) and not world.is_blocked(*back)
