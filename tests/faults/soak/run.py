"""A soak: epochs that are read while faults are injected."""

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.faults.soak.faults import LEASE, Fault
from tests.faults.soak.growth import Growth, Trend, Usage, leaks_since, usage_by_role
from tests.faults.soak.processes import Cluster, Trainer
from tests.faults.soak.rules import MODES, violations
from tests.faults.soak.trainer import Command
from tests.serving import eventually

WORKERS = 3
TRAINERS = ("trainer", "named trainer 0", "named trainer 1")

EPOCH_SECONDS = 300.0
"""Deadline of an epoch: faults last up to 15 s each, and only a hang exceeds it."""

AFTERMATH_SECONDS = 1.5 * LEASE
"""Time after a repair in which the dispatcher may still notice what was lost."""

PROTOCOLS = (None, "tcp")


@dataclass
class Report:
    """The findings of a soak.

    Attributes:
        epochs: read to their ends, by mode.
        elements: received.
        faults: injected, by name.
        lost: elements that did not arrive in epochs whose losses were counted.
        broken: one line for each violation of a rule.
        trends: the usage of each role.
    """

    epochs: Counter[str] = field(default_factory=Counter)
    elements: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    broken: list[str] = field(default_factory=list)
    trends: dict[str, Trend] = field(default_factory=dict)


@dataclass
class _Harm:
    """A fault of a target, and the time until which epochs may show it."""

    fault: Fault
    number: int
    until: float = math.inf


class Soak:
    """Epochs of several trainers, and faults, in a cluster.

    Args:
        cluster: entered.
        seed: of the choice of faults and of the datasets.
        say: called with each line of the story.
        elements: of each dataset.
        seconds: that a worker takes for an element.
        pace: factor of the seconds of all faults; the leases of the cluster are `LEASE` times it.

    Attributes:
        report: the findings so far.
    """

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        say: Callable[[str], object],
        *,
        elements: int = 2_000,
        seconds: float = 0.002,
        pace: float = 1.0,
    ) -> None:
        self.report = Report()
        self._cluster = cluster
        self._seed = seed
        self._say = say
        self._elements = elements
        self._seconds = seconds
        self._pace = pace
        self._stop = threading.Event()
        self._repaired = threading.Condition()
        self._harms: list[_Harm] = []
        self._began = time.monotonic()

    def run(self, injectors: Sequence[Iterator[Fault]]) -> Report:
        """Read epochs while each injector's faults happen, until all injectors are at their end.

        Args:
            injectors: each injects its faults one after another, beside the others.
        """
        lanes = [
            threading.Thread(target=self._guarded, args=(lane, self._stop.is_set))
            for lane in (self._alone, self._named)
        ]
        threads = [
            threading.Thread(target=self._guarded, args=(self._inject, faults, number))
            for number, faults in enumerate(injectors)
        ]
        idle = self._warm_up()
        with Growth(self._cluster.processes) as growth:
            for thread in [*lanes, *threads]:
                thread.start()
            for thread in threads:
                thread.join()
            self._stop.set()
            for thread in lanes:
                thread.join()
        self.report.trends = growth.trends()
        for line in leaks_since(idle, self._cluster.processes):
            self._break(line)
        return self.report

    def _warm_up(self) -> dict[str, Usage]:
        """Read without faults; return what each process then uses that serves and reads nothing."""
        self._cluster.wait_registered()
        for mode in MODES:
            self._epoch(mode, self._cluster.trainers[:1], PROTOCOLS[0], None)
        self._epoch(MODES[0], self._cluster.trainers[1:], PROTOCOLS[1], "warm-up")
        return usage_by_role(self._cluster.processes)

    # ── epochs ───────────────────────────────────────────────────────────────────────────────────
    def _alone(self, ended: Callable[[], bool]) -> None:
        """Read epochs of a job without a name, each with another mode and transport."""
        trainer = self._cluster.trainers[0]
        number = 0
        while not ended():
            mode, protocol = MODES[number % 2], PROTOCOLS[number // 2 % 2]
            self._epoch(mode, [trainer], protocol, None)
            number += 1

    def _named(self, ended: Callable[[], bool]) -> None:
        """Read epochs of named jobs by two trainers, of which one is killed at times."""
        rng = random.Random(self._seed)
        number = 0
        while not ended():
            kill_at = self._elements // 4 if rng.random() < 0.25 else None
            name = f"job {number}"
            self._epoch(MODES[0], self._cluster.trainers[1:], PROTOCOLS[number % 2], name, kill_at)
            number += 1

    def _epoch(
        self,
        mode: str,
        trainers: Sequence[Trainer],
        protocol: str | None,
        job_name: str | None,
        kill_at: int | None = None,
    ) -> None:
        command = Command("", mode, self._elements, self._seconds, job_name, protocol)
        what = f"epoch of {mode} by {' and '.join(each.process.role for each in trainers)}"
        began = time.monotonic()
        before = sum(each.received for each in trainers)
        for trainer in trainers:
            trainer.begin(command)
        if kill_at is not None:
            enough = before + kill_at
            eventually(lambda: sum(x.received for x in trainers) >= enough, EPOCH_SECONDS)
            self._tell(f"kill -9 of {trainers[-1].process.role}")
            self.report.faults["kill -9 of a trainer"] += 1
            trainers[-1].kill()
        readings = [trainer.finish(EPOCH_SECONDS) for trainer in trainers]
        with self._repaired:
            harms = [harm.fault for harm in self._harms if harm.until > began]
        received = sum(len(each.received) for each in readings)
        counted = max(reading.counted for reading in readings)
        self._tell(f"{what} ended: {received} elements, at most {counted} lost")
        # With short leases a busy machine may lose a worker by itself.
        losses = self._pace < 1.0 or any(x.losses for x in harms)
        drains = sum(x.drains for x in harms)
        for line in violations(mode, self._elements, readings, losses=losses, drains=drains):
            self._break(f"{what}: {line}")
        self.report.epochs[mode] += 1
        self.report.elements += received
        if mode == MODES[0] and kill_at is None:
            self.report.lost += max(0, self._elements - received)

    # ── faults ───────────────────────────────────────────────────────────────────────────────────
    def _inject(self, faults: Iterator[Fault], number: int) -> None:
        rng = random.Random(self._seed * 1000 + number)
        for fault in faults:
            with self._target(fault, rng) as target:
                seconds = rng.uniform(*fault.seconds) * self._pace
                self._tell(f"{fault.name}: {fault.target} {target}, for {seconds:.1f} s")
                self.report.faults[fault.name] += 1
                fault.inject(self._cluster, target, partial(self._stop.wait, seconds))
                self._tell(f"end of {fault.name}: {fault.target} {target}")
            if self._stop.wait(rng.uniform(0.1, 0.5)):
                return

    @contextmanager
    def _target(self, fault: Fault, rng: random.Random) -> Iterator[int]:
        """Wait for a target that no other fault harms, and record the harm."""
        count = {
            "dispatcher": 1,
            "worker": len(self._cluster.machines),
            "trainer": len(self._cluster.trainers),
        }[fault.target]

        def free() -> list[int]:
            busy = {(x.fault.target, x.number) for x in self._harms if x.until == math.inf}
            return [number for number in range(count) if (fault.target, number) not in busy]

        with self._repaired:
            self._repaired.wait_for(free)
            harm = _Harm(fault, rng.choice(free()))
            self._harms.append(harm)
        try:
            yield harm.number
        finally:
            with self._repaired:
                harm.until = time.monotonic() + AFTERMATH_SECONDS * self._pace
                self._repaired.notify_all()

    # ── the story ────────────────────────────────────────────────────────────────────────────────
    def _guarded(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run a thread; its exception is a violation, and ends the soak."""
        try:
            function(*arguments)
        except Exception as error:
            self._break(f"{type(error).__name__}: {error}")
            self._stop.set()

    def _break(self, line: str) -> None:
        self._tell(f"BROKEN: {line}")
        self.report.broken.append(line)

    def _tell(self, line: str) -> None:
        self._say(f"{time.monotonic() - self._began:8.2f} {line}")
