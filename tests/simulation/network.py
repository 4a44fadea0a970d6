"""A clock and a network that exist only in memory: what happens when is drawn from one generator.

A `Link` is one connection. Each direction is first in, first out, with a delay for each message. A
link that breaks loses the end of what was under way; each side learns of it in its own time.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any, Protocol


class World:
    """Simulated time, the order of events, and what was said (the trace)."""

    def __init__(self, rng: random.Random, tracing: bool) -> None:
        self.rng = rng
        self.now = 0.0
        self.tracing = tracing
        self.trace: list[str] = []
        self.links: list[Link] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Lets `event` happen at `time`."""
        heapq.heappush(self._events, (time, next(self._order), event))

    def after(self, delay: float, event: Callable[[], None]) -> None:
        """Lets `event` happen `delay` seconds from now."""
        self.at(self.now + delay, event)

    def every(self, interval: float, event: Callable[[], None], while_: Callable[[], bool]) -> None:
        """Lets `event` happen again and again as long as `while_` holds."""

        def step() -> None:
            if while_():
                event()
                self.after(interval, step)

        self.after(interval * self.rng.random(), step)

    def run(self, done: Callable[[], bool], until: float) -> bool:
        """Lets events happen until `done`; returns whether it was in time."""
        while not done():
            if not self._events or self._events[0][0] > until:
                return False
            self.now, _, event = heapq.heappop(self._events)
            event()
        return True

    def note(self, text: str) -> None:
        """Writes a line of the trace."""
        if self.tracing:
            self.trace.append(f"{self.now:9.4f}  {text}")


class Listener(Protocol):
    """What hears one side of a link."""

    def received(self, message: Any) -> None:
        """The other side said something."""

    def lost(self) -> None:
        """The link is gone; nothing more will be received."""


class Side:
    """One end of a link.

    Attributes:
        open: this end has neither closed nor learned that the link is gone.
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
        """Says `message` to the other side; a link that is broken loses it."""
        if not self.open or self.cut is not None:
            return
        world = self.link.world
        number, self.sent = self.sent, self.sent + 1
        self.last_time = max(self.last_time, world.now + self.link.delay())
        world.at(self.last_time, lambda: self._deliver(number, message))

    def close(self) -> None:
        """Ends the link from this side; the other learns of it after all that was sent."""
        if self.open:
            self.open = False
            if self.cut is None:
                self.link.world.at(
                    max(self.last_time, self.link.world.now + self.link.delay()), self.other.learn
                )

    def learn(self) -> None:
        """This side notices that the link is gone."""
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
        """The time one message takes: mostly short, at times long."""
        rng = self.world.rng
        return rng.uniform(0.0005, self.slowest if rng.random() < 0.1 else 0.005)

    def break_(self, noticed: tuple[float, float]) -> None:
        """Breaks: some of what is under way arrives, then each side notices after its time."""
        if not self.alive:
            return
        self.world.note(f"       {self.sides[0].name} ⚡ {self.sides[1].name}")
        for side in self.sides:
            side.cut = self.world.rng.randint(side.delivered, side.sent)
        for side, seconds in zip(self.sides, noticed, strict=True):
            self.world.after(seconds, side.learn)
