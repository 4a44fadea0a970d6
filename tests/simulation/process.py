"""Simulated processes: they run, are frozen for a time as by SIGSTOP, or have ended."""

from collections import deque
from collections.abc import Callable

from tests.simulation.network import World


class Process:
    """One process of a host. Its host keeps the messages that arrive while it is frozen.

    Args:
        world: the clock and the network.
        name: names it in the trace.
        host: the host, by default of the same name; a successor runs on the host of the first.

    Attributes:
        alive: it has not ended.
        frozen_since: time since which it does nothing, or ``None``.
    """

    def __init__(self, world: World, name: str, host: str = "") -> None:
        self.world, self.name, self.host = world, name, host or name
        self.alive = True
        self.frozen_since: float | None = None
        self._thaws_at = 0.0
        self._backlog: deque[tuple[object, Callable[[], None]]] = deque()
        self._timers: list[Callable[[], None]] = []

    def run(self, event: Callable[[], None], source: object = None) -> None:
        """Run an event in this process: now, or after what waits for the end of a freeze.

        Args:
            event: the event.
            source: events of one source keep their order, as the messages of one connection do.
        """
        if not self.alive:
            return
        if self.frozen_since is not None or self._backlog:
            self._backlog.append((source, event))
        else:
            event()

    def run_if_awake(self, event: Callable[[], None]) -> None:
        """Run a timer; while the process is frozen it is dropped."""
        if self.alive and self.frozen_since is None:
            event()

    def after(self, delay: float, event: Callable[[], None]) -> None:
        """Schedule an event of this process after `delay` seconds."""
        self.world.after(delay, lambda: self.run(event))

    def every(self, interval: float, event: Callable[[], None], while_: Callable[[], bool]) -> None:
        """Schedule a timer; after a freeze it runs once, before or after what has arrived."""

        def tick() -> None:
            if self.frozen_since is None:
                event()
            elif event not in self._timers:
                self._timers.append(event)

        self.world.every(interval, tick, lambda: self.alive and while_())

    def freeze(self, seconds: float) -> None:
        """Stop for `seconds`: nothing is sent, and what arrives waits."""
        if not self.alive:
            return
        self.world.note(f"       {self.name} is frozen for {seconds:.2f} s")
        if self.frozen_since is None:
            self.frozen_since = self.world.now
        self._thaws_at = max(self._thaws_at, self.world.now + seconds)
        self.world.after(seconds, self._thaw)
        self.world.scan_until(self._thaws_at)

    def kill(self, *, silently: bool = False) -> None:
        """End the process; its peers learn it at once, or by silence if its host has ended."""
        self.alive = False
        self._backlog.clear()
        if silently:
            self.frozen_since = self.world.now
            self.world.scan_until(self.world.now + 2 * self.world.peer_timeout)
            return
        for link in self.world.links:
            for side in link.sides:
                if side.process is self:
                    side.close()

    def _thaw(self) -> None:
        if self.frozen_since is None or self._thaws_at > self.world.now or not self.alive:
            return
        seconds, self.frozen_since = self.world.now - self.frozen_since, None
        self.world.note(f"       {self.name} goes on")
        rng = self.world.rng
        timers, self._timers = self._timers, []
        if seconds > self.world.peer_timeout:
            mine = [x for link in self.world.links for x in link.sides if x.process is self]
            timers += [side.time_out for side in mine if rng.random() < 0.3]
        self._shuffle()
        for timer in timers:
            self._backlog.insert(rng.randint(0, len(self._backlog)), (None, timer))
        self._continue()

    def _shuffle(self) -> None:
        """Order what waits as a process that reads its sockets in any order."""
        sources = [source for source, _ in self._backlog]
        queues: dict[object, deque[Callable[[], None]]] = {}
        for source, event in self._backlog:
            queues.setdefault(source, deque()).append(event)
        self.world.rng.shuffle(sources)
        self._backlog = deque((source, queues[source].popleft()) for source in sources)

    def _continue(self) -> None:
        """Do the next thing that waits, and the others after it."""
        if self._backlog and self.alive and self.frozen_since is None:
            self._backlog[0][1]()
            # It stays until then, so that what arrives meanwhile comes after it.
            if self._backlog:
                self._backlog.popleft()
            self.world.after(self.world.rng.uniform(0, 0.001), self._continue)
