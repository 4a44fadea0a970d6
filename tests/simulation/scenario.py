"""Scenarios of simulated runs, drawn from a seed."""

import dataclasses
import random
from collections import Counter
from dataclasses import dataclass

from stoker.service.rules.processing_modes import ShardingPolicy
from tests.simulation.faults import (
    SHORT_SECONDS,
    Breaks,
    Cancel,
    ClientCrash,
    Crash,
    DiskFull,
    DispatcherCrash,
    Drain,
    Fault,
    Freeze,
    JournalCut,
    Partition,
    TakeOver,
    draw_faults,
    impaired_seconds,
    last_end,
    stops_dispatcher,
)
from tests.simulation.pipeline import ENDLESS, Plan, SourcePlan
from tests.simulation.shard_plan import draw_policy, with_all_back

CLIENT_LEASE = 4.0
WORKER_LEASE = 2.0
"""Seconds after which a client or worker without a heartbeat is released."""

JOIN_SECONDS = 3.0
"""Time until which clients join."""

STOP_AFTER = 150
"""Most elements after which a client of a cross-trainer cache closes."""

MARGIN_SECONDS = 2.0
"""Time for all that follows the end of a lease."""


@dataclass(frozen=True)
class WorkerPlan:
    """A worker that joins at time `joins` and needs `seconds` for a typical element."""

    joins: float
    seconds: float


@dataclass(frozen=True)
class ClientPlan:
    """A client that joins at time `joins` and closes after `stop_after` elements, or reads on."""

    joins: float
    stop_after: int | None


# A seed is a scenario, so that a failure is repeated by its number. (docs/decisions/097)
@dataclass(frozen=True)
class Scenario:
    """One run, except for the random delays of the network.

    Attributes:
        slowest_commit: the longest time of a commit of the journal; ``None``: there is no journal.
        compaction_pause: average time between compactions; ``None``: there are none.
        static: the policy if sharding is static; otherwise `dynamic` decides.
        cache_bytes: size of the cross-trainer cache; ``None``: the job has none. With it the
            dataset is endless.
        trainers: the number of trainers, which have clients in turn, if there is a cache.
        num_consumers: the clients are so many consumers of a coordinated read; 0: they are not.
        lockstep: each consumer waits for the others after each step.
        successors: (consumer, time at which it starts again after its crash).
    """

    kind: str
    dynamic: bool
    plan: Plan
    workers: tuple[WorkerPlan, ...]
    clients: tuple[ClientPlan, ...]
    buffer_bytes: int
    client_seconds: float
    max_outstanding_requests: int | None
    faults: tuple[Fault, ...]
    registered: bool
    tasks_per_client: int
    peer_timeout: float
    slowest_commit: float | None
    compaction_pause: float | None
    static: ShardingPolicy | None = None
    cache_bytes: int | None = None
    trainers: int = 1
    num_consumers: int = 0
    lockstep: bool = False
    successors: tuple[tuple[int, float], ...] = ()

    @property
    def policy(self) -> ShardingPolicy:
        """The processing mode of the job."""
        if self.static is not None:
            return self.static
        return ShardingPolicy.DYNAMIC if self.dynamic else ShardingPolicy.OFF

    @property
    def lossless(self) -> bool:
        """True if no worker and no client is lost, so that all elements must arrive."""
        lost = any(isinstance(fault, Crash | ClientCrash) for fault in self.faults)
        # The data connection of a client that closes may break, and its call not arrive.
        closes = any(client.stop_after is not None for client in self.clients)
        breaks = any(isinstance(fault, Breaks) for fault in self.faults)
        lost |= closes and breaks and stops_dispatcher(self.faults)
        lost |= self.replaced
        return not lost and impaired_seconds(self.faults) <= SHORT_SECONDS

    @property
    def cancelled(self) -> bool:
        """True if an operator cancels the job."""
        return any(isinstance(fault, Cancel) for fault in self.faults)

    @property
    def journal_cut(self) -> bool:
        """True if the journal loses its end."""
        return any(isinstance(fault, JournalCut) for fault in self.faults)

    @property
    def replaced(self) -> bool:
        """True if dispatchers without a journal follow one another."""
        return self.slowest_commit is None and stops_dispatcher(self.faults)

    @property
    def lease_seconds(self) -> float:
        """The time after which a client that was lost is released, and what follows is done."""
        if not self.faults:
            return MARGIN_SECONDS
        # A dispatcher that starts waits for clients that must notice by silence that it restarted.
        restart = self.peer_timeout if stops_dispatcher(self.faults) else 0.0
        return CLIENT_LEASE + restart + MARGIN_SECONDS

    @property
    def kept_seconds(self) -> float:
        """The time for which a job without clients is kept: until the last has come."""
        return JOIN_SECONDS + last_end(self.faults) + self.lease_seconds + MARGIN_SECONDS

    @property
    def drains(self) -> bool:
        """True if a worker drains."""
        return any(isinstance(fault, Drain) for fault in self.faults)

    def may_lose_lease(self, client: str) -> bool:
        """Return whether a client may be unable to send heartbeats for its whole lease."""
        return impaired_seconds(self.faults, client) >= CLIENT_LEASE / 2

    def contents(self) -> Counter[str]:
        """Return 1 for each property of the scenario that a summary counts."""
        found = Counter({self.policy.name: 1, f"kind: {self.kind}": 1})
        found.update({_name(fault): 1 for fault in self.faults})
        if any(x.joins for x in self.workers):
            found["worker joins later"] = 1
        if any(x.joins for x in self.clients):
            found["client joins later"] = 1
        if any(x.stop_after is not None for x in self.clients):
            found["client closes early"] = 1
        if self.slowest_commit is None:
            found["without a journal"] = 1
        if self.lockstep:
            found["consumers in lockstep"] = 1
        if self.successors:
            found["a consumer restarts"] = 1
        if self.cache_bytes is not None:
            found["cross-trainer cache"] = 1
        elif self.lossless:
            found["must lose nothing"] = 1
        return found


_NAMES: dict[type[Fault], str] = {
    Breaks: "connections break",
    Crash: "worker crashes",
    ClientCrash: "client crashes",
    Cancel: "job is cancelled",
    DispatcherCrash: "dispatcher crashes",
    DiskFull: "disk is full",
    TakeOver: "dispatcher is taken over",
    JournalCut: "journal loses its end",
}


def _name(fault: Fault) -> str:
    match fault:
        case Drain():
            return "worker is asked to drain" if fault.asked else "worker drains"
        case Freeze("D", _, _):
            return "dispatcher is frozen"
        case Freeze(host, _, seconds):
            lease = WORKER_LEASE if host.startswith("W") else CLIENT_LEASE
            who = "worker" if host.startswith("W") else "client"
            return f"{who} is frozen{' for more than its lease' if seconds > lease else ''}"
        case Partition():
            return "partition, both directions" if fault.both else "partition, one direction"
    return _NAMES[type(fault)]


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = random.Random(f"scenario {seed}")
    plan = _draw_plan(rng)
    total = len(plan.elements())
    workers = tuple(
        WorkerPlan(
            rng.uniform(0, 1.5) if k and rng.random() < 0.15 else 0.0, 10 ** rng.uniform(-4, -2)
        )
        for k in range(rng.choice([1, 2, 2, 2, 3, 6]))
    )
    clients = tuple(
        ClientPlan(
            rng.uniform(0, JOIN_SECONDS) if k and rng.random() < 0.3 else 0.0,
            rng.randint(1, max(1, total // 2)) if rng.random() < 0.25 else None,
        )
        for k in range(rng.choice([1, 1, 2, 2, 3]))
    )
    kind, faults = draw_faults(rng, len(workers), len(clients))
    replaced = kind == "replaced"
    journaled = not replaced and (stops_dispatcher(faults) or rng.random() < 0.7)
    static = draw_policy(seed, plan, len(workers))
    scenario = Scenario(
        kind=kind,
        dynamic=rng.random() < 0.7 and static is None,
        plan=plan,
        workers=workers,
        clients=clients,
        buffer_bytes=rng.choice([10, 100, 1000]),
        client_seconds=10 ** rng.uniform(-4, -2),
        max_outstanding_requests=rng.choice([None, None, 1, 2, 5]),
        faults=faults if static is None else with_all_back(faults),
        registered=rng.random() < 0.5 and kind not in ("replaced", "journal cut"),
        tasks_per_client=rng.choice([1, 1, 2, 128, 128, 128]),
        peer_timeout=rng.choice([1.0, 1.0, 3.0, 6.0]),
        slowest_commit=rng.choice([0.003, 0.02, 0.1, 0.3]) if journaled else None,
        compaction_pause=rng.choice([None, 1.0, 0.1]),
        static=static,
    )
    is_cached = static is None and rng.random() < 0.1
    return _with_cache(scenario, rng) if is_cached else scenario


def _with_cache(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario in which trainers share a cache, and each client stops early."""
    sources = [dataclasses.replace(x, count=max(x.count, 5)) for x in scenario.plan.sources]
    clients = [
        ClientPlan(
            rng.uniform(0, JOIN_SECONDS) if rng.random() < 0.5 else 0.0, rng.randint(1, STOP_AFTER)
        )
        for _ in range(rng.choice([2, 3, 5]))
    ]
    return dataclasses.replace(
        scenario,
        plan=Plan(tuple(sources), ENDLESS, scenario.plan.errors),
        clients=tuple(clients),
        cache_bytes=rng.choice([300, 1000, 5000, 10**6]),
        trainers=rng.choice([2, 3, 5]),
    )


def _draw_plan(rng: random.Random) -> Plan:
    sources = tuple(
        SourcePlan(
            number,
            count=rng.choice([0, 1, 5, 20, 40]) if rng.random() < 0.5 else rng.randint(1, 60),
            per_file=rng.randint(1, 8) if rng.random() < 0.4 else 0,
        )
        for number in range(rng.choice([1, 1, 2]))
    )
    plan = Plan(sources, rng.choice([1, 1, 2, 3]))
    failing = frozenset(x for x in plan.elements() if rng.random() < 0.02)
    return Plan(plan.sources, plan.epochs, failing)
