"""A simulated clock and network; one random generator draws all delays.

A `Link` is one connection. Each direction is first in, first out, with a delay for each message. A
link that breaks loses the last messages in flight; each side notices after its own delay.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any, Protocol


class World:
    """Simulated time, the order of events, and the trace of messages."""

    def __init__(self, rng: random.Random, tracing: bool) -> None:
        self.rng = rng
        self.now = 0.0
        self.tracing = tracing
        self.trace: list[str] = []
        self.links: list[Link] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

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
        if self.tracing:
            self.trace.append(f"{self.now:9.4f}  {text}")


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
    """

    def __init__(self, link: "Link", name: str) -> None:
        self.link = link
        self.name = name
        self.open = True
        self.listener: Listener | None = None
        self.sent = 0
        self.delivered = 0
        self.cut: int | None = None
        self.last_time = 0.0

    @property
    def other(self) -> "Side":
        return self.link.sides[self is self.link.sides[0]]

    def send(self, message: Any) -> None:
        """Send `message` to the other side; a broken link loses it."""
        if not self.open or self.cut is not None:
            return
        world = self.link.world
        number, self.sent = self.sent, self.sent + 1
        self.last_time = max(self.last_time, world.now + self.link.delay())
        world.at(self.last_time, lambda: self._deliver(number, message))

    def close(self) -> None:
        """Close the link; the other side notices after all messages sent before."""
        if self.open:
            self.open = False
            if self.cut is None:
                self.link.world.at(
                    max(self.last_time, self.link.world.now + self.link.delay()), self.other.learn
                )

    def learn(self) -> None:
        """Notice the end of the link on this side."""
        if self.open:
            self.open = False
            self.link.world.note(f"{self.name} ✂ {self.other.name}")
            if self.listener is not None:
                self.listener.lost()

    def _deliver(self, number: int, message: Any) -> None:
        self.delivered = number + 1
        target = self.other
        if target.open and (self.cut is None or number < self.cut) and target.listener is not None:
            self.link.world.note(f"{self.name} → {target.name}  {message}")
            target.listener.received(message)


class Link:
    """One connection between two named ends."""

    def __init__(self, world: World, names: tuple[str, str], slowest: float) -> None:
        self.world = world
        self.slowest = slowest
        self.sides = (Side(self, names[0]), Side(self, names[1]))
        world.links = [link for link in world.links if link.alive]
        world.links.append(self)

    @property
    def alive(self) -> bool:
        return all(side.open and side.cut is None for side in self.sides)

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
            self.world.after(seconds, side.learn)
