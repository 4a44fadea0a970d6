"""Scenarios of deterministic epochs, drawn from a seed."""

import random
from collections import Counter
from dataclasses import dataclass

from stoker.service.rules.processing_modes import ShardingPolicy
from tests.simulation.faults import DiskFull, JournalCut, TakeOver, draw_faults, stops_dispatcher
from tests.simulation.pipeline import Plan
from tests.simulation.positions.epoch import EpochPlan, draw_epoch
from tests.simulation.scenario import CLIENT_LEASE, MARGIN_SECONDS, Scenario, WorkerPlan

STOPS = ("closed", "crashed", "crashed with their hosts")
"""The ways in which the consumers of a phase end before the end of the epoch."""


LONGEST_SECONDS = 0.02
"""Longest time of a typical element on a typical worker, and of its consumer."""


@dataclass(frozen=True)
class Phase:
    """Consumers that begin together, at the step of the last checkpoint of those before them.

    Attributes:
        count: the number of consumers.
        indexed: they give their index.
        lockstep: each consumer waits for the others after each step.
        drop_short_step: all consumers end at the same step.
        checkpoint: each consumer keeps its state after so many steps.
        rivals: times after its begin at which a second client of a consumer begins too, from its
            last state: without an index in place of the first, else besides it.
        pace: the time of a second client to consume an element, in times of that of others.
        seconds: time after which they stop, except in the last phase.
        stop: one of `STOPS`.
        pause: time until the next phase begins.
    """

    count: int
    indexed: bool
    lockstep: bool
    drop_short_step: bool
    checkpoint: int
    rivals: tuple[float, ...]
    pace: int
    seconds: float
    stop: str
    pause: float


@dataclass(frozen=True, kw_only=True)
class PositionScenario(Scenario):
    """A run of consumers of one epoch, whose number may change.

    Attributes:
        epoch: the dataset.
        phases: the consumers, one group after another.
        reader_bytes: the `buffer_bytes` of clients.
        kept: as `kept_seconds`.
    """

    epoch: EpochPlan
    phases: tuple[Phase, ...]
    reader_bytes: int
    kept: float

    @property
    def policy(self) -> ShardingPolicy:
        return ShardingPolicy.DETERMINISTIC

    @property
    def lossless(self) -> bool:
        """True: other workers compute what was lost, and a consumer knows what it has read."""
        return True

    @property
    def lease_seconds(self) -> float:
        """The time after which a client that was lost is released: the user may end clients too."""
        return CLIENT_LEASE + self.peer_timeout + MARGIN_SECONDS

    @property
    def kept_seconds(self) -> float:
        """The time for which a job without clients is kept; later ones begin it anew."""
        return self.kept

    def contents(self) -> Counter[str]:
        found = super().contents()
        for before, after in zip(self.phases, self.phases[1:], strict=False):
            same = before.count == after.count
            found["consumers resume" if same else "the number of consumers changes"] = 1
            found[f"consumers are {before.stop}"] = 1
        properties = {
            "consumers in lockstep": any(phase.lockstep for phase in self.phases),
            "without an index": any(not phase.indexed for phase in self.phases),
            "readers replace each other": any(
                phase.rivals and not phase.indexed for phase in self.phases
            ),
            "two readers of one index": any(
                phase.rivals and phase.indexed for phase in self.phases
            ),
            "function ends its process": bool(self.epoch.poisoned),
            "elements larger than the buffers": max(self.epoch.sizes) > self.reader_bytes,
            "one request outstanding": self.max_outstanding_requests == 1,
            "endless epoch": self.epoch.is_endless,
            "slow elements": self.epoch.slow > 0,
            "workers load for seconds": self.epoch.opening > 1.0,
        }
        return found + Counter({name: 1 for name, holds in properties.items() if holds})


def draw_positions(seed: int) -> PositionScenario:
    """Return the scenario of a seed."""
    rng = random.Random(f"positions {seed}")
    epoch = draw_epoch(rng)
    phases = tuple(_draw_phase(rng) for _ in range(rng.choice([1, 1, 2, 3])))
    most = max(phase.count for phase in phases)
    count = rng.choice([1, 2, 2, 3, 4, 8])
    kind, faults = draw_faults(rng, count, most)
    on_disk = any(isinstance(fault, DiskFull | TakeOver | JournalCut) for fault in faults)
    journaled = on_disk or (kind != "replaced" and rng.random() < 0.6)
    forgets = kind == "journal cut" or (not journaled and stops_dispatcher(faults))
    # As long as the faults, so that these strike while it is read.
    seconds = 10 ** rng.uniform(-1.0, 0.3)
    return PositionScenario(
        kind=kind,
        dynamic=False,
        plan=Plan((), 0),
        workers=_draw_workers(rng, count, min(LONGEST_SECONDS, seconds / max(1, epoch.weights))),
        clients=(),
        buffer_bytes=rng.choice([1, 10, 100, 1000, 1 << 20]),
        client_seconds=min(LONGEST_SECONDS, seconds / max(1, epoch.stop))
        * 10 ** rng.uniform(-1.0, 0.0),
        max_outstanding_requests=rng.choice([None, None, 1, 2, 5]),
        faults=faults,
        registered=rng.random() < 0.5 and not forgets,
        tasks_per_client=rng.choice([1, 2, 128, 128, 128]),
        peer_timeout=rng.choice([1.0, 1.0, 3.0, 6.0]),
        slowest_commit=rng.choice([0.003, 0.02, 0.1, 0.3]) if journaled else None,
        compaction_pause=rng.choice([None, 1.0, 0.1]),
        epoch=epoch,
        phases=phases,
        reader_bytes=rng.choice([1, 50, 500, 5000, 64 << 20]),
        kept=rng.choice([0.5, 5.0, 30.0]),
    )


def _draw_phase(rng: random.Random) -> Phase:
    count = rng.choice([1, 1, 1, 2, 3, 4, 8])
    indexed = count > 1 or rng.random() < 0.5
    rivals = [rng.uniform(0.0, 1.5) for _ in range(rng.choice([1, 1, 2, 3]))]
    return Phase(
        count=count,
        indexed=indexed,
        lockstep=count > 1 and rng.random() < 0.4,
        drop_short_step=count > 1 and rng.random() < 0.3,
        checkpoint=rng.choice([1, 1, 3, 10, 10**9]),
        rivals=tuple(rivals) if rng.random() < 0.2 else (),
        pace=rng.choice([1, 1, 10]),
        seconds=rng.uniform(0.05, 1.5),
        stop=rng.choice(STOPS),
        pause=rng.choice([0.0, 0.05, 1.0, 6.0]),
    )


def _draw_workers(rng: random.Random, count: int, seconds: float) -> tuple[WorkerPlan, ...]:
    """Return workers; `seconds` per typical element would take one of them as long as planned."""
    return tuple(
        WorkerPlan(
            rng.uniform(0, 1.5) if k and rng.random() < 0.2 else 0.0,
            seconds * (rng.choice([10, 30]) if k and rng.random() < 0.15 else rng.uniform(0.5, 2)),
        )
        for k in range(count)
    )
