"""Scenarios of simulated runs, drawn from a seed, and their execution."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import msgspec

from stoker.dataset.options import Options
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, Source
from stoker.dataset.tree.structure import WireNode, structure_of
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig, ShardingPolicy
from stoker.service.read_options import ReadOptions
from tests.simulation.actors import SimClient, SimDispatcher, SimWorker
from tests.simulation.network import World
from tests.simulation.pipeline import Plan, SourcePlan

LIMIT = 120.0
"""Simulated seconds within which every epoch must end."""

LEASE = 4.0
"""Seconds after which a client that crashed is released."""

GRACE = 60.0
"""Seconds in which clients must have read what a worker that drains has computed."""

SETTLED = 20.0
"""Simulated seconds after which no state of the epoch may be left."""


@dataclass(frozen=True)
class Crash:
    """The death of a worker at time `at`, and its restart after `back` seconds unless ``None``."""

    worker: int
    at: float
    back: float | None
    same_address: bool
    reported: bool


@dataclass(frozen=True)
class Drain:
    """A worker that drains at time `at`, and its successor after `back` seconds unless ``None``."""

    worker: int
    at: float
    back: float | None


@dataclass(frozen=True)
class Scenario:
    """One run, except for the random delays of the network."""

    dynamic: bool
    plan: Plan
    workers: int
    worker_seconds: tuple[float, ...]
    late: float | None
    buffer_bytes: int
    clients: int
    client_seconds: float
    max_outstanding_requests: int | None
    stop_after: int | None
    breaks: float
    crashes: tuple[Crash, ...]
    drains: tuple[Drain, ...]
    client_crash: float | None
    registered: bool
    tasks_per_client: int

    @property
    def lossless(self) -> bool:
        """True if at most connections break and workers drain, so that all elements must arrive."""
        return not self.crashes and self.client_crash is None


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = random.Random(f"scenario {seed}")
    kinds = ["none", "breaks", "crash", "both", "client", "drain"]
    faults = rng.choices(kinds, [3, 4, 2, 2, 1, 3])[0]
    workers = rng.choice([1, 2, 2, 2, 3, 6])
    clients = rng.choice([1, 1, 2, 3])
    plan = _draw_plan(rng)
    crashes: list[Crash] = []
    if faults in ("crash", "both"):
        # At least one worker survives or restarts; otherwise the epoch could not end.
        doomed = rng.sample(range(workers), rng.randint(1, workers))
        for k, worker in enumerate(doomed):
            must = k == workers - 1
            back = rng.uniform(0.1, 3.0) if must or rng.random() < 0.5 else None
            crash = Crash(worker, rng.uniform(0, 1.5), back, rng.random() < 0.5, rng.random() < 0.3)
            crashes.append(crash)
    drains: list[Drain] = []
    if faults == "drain":
        for k, worker in enumerate(rng.sample(range(workers), rng.randint(1, workers))):
            back = rng.uniform(0.0, 3.0) if k == workers - 1 or rng.random() < 0.5 else None
            drains.append(Drain(worker, rng.uniform(0, 1.0), back))
    total = len(plan.elements())
    return Scenario(
        dynamic=rng.random() < 0.7,
        plan=plan,
        workers=workers,
        worker_seconds=tuple(10 ** rng.uniform(-4, -2) for _ in range(workers + 1)),
        late=rng.uniform(0, 1) if rng.random() < 0.2 else None,
        buffer_bytes=rng.choice([10, 100, 1000]),
        clients=clients,
        client_seconds=10 ** rng.uniform(-4, -2),
        max_outstanding_requests=rng.choice([None, None, 1, 2, 5]),
        stop_after=rng.randint(1, max(1, total // 2)) if rng.random() < 0.25 * clients else None,
        breaks=rng.choice([0.5, 2, 8]) if faults in ("breaks", "both") else 0.0,
        crashes=tuple(crashes),
        drains=tuple(drains),
        client_crash=rng.uniform(0, 1.0) if faults == "client" and clients > 1 else None,
        registered=rng.random() < 0.5,
        tasks_per_client=random.Random(f"tasks {seed}").choice([1, 1, 2, 128, 128, 128]),
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


@dataclass
class Outcome:
    """The outcome of a run."""

    scenario: Scenario
    world: World
    dispatcher: SimDispatcher
    workers: list[SimWorker]
    clients: list[SimClient]
    in_time: bool = False
    broken: int = 0
    leftovers: list[str] = field(default_factory=list)


def run(seed: int, *, tracing: bool = False) -> Outcome:
    """Run the scenario of a seed to its end, and until no state should be left."""
    scenario = draw(seed)
    world = World(random.Random(f"network {seed}"), tracing)
    world.note(f"{scenario}")
    config = DispatcherConfig(
        worker_timeout_ms=2_000,
        client_timeout_ms=round(LEASE * 1000),
        job_gc_check_interval_ms=500,
        job_gc_timeout_ms=6_000,
        gc_dynamic_sharding_jobs=True,
    )
    dispatcher = SimDispatcher(world, config, scenario.tasks_per_client)
    by_address: dict[str, SimWorker] = {}
    outcome = Outcome(scenario, world, dispatcher, [], [])
    registration = _registration(scenario.plan)
    if scenario.registered:
        assert isinstance(dispatcher.call(registration), m.DatasetRegistered)

    def start_worker(k: int, address: str, name: str) -> None:
        seconds = scenario.worker_seconds[k]
        worker = SimWorker(
            world, name, address, dispatcher, scenario.plan, seconds, scenario.buffer_bytes
        )
        by_address[address] = worker
        outcome.workers.append(worker)

    for k in range(scenario.workers):
        start_worker(k, f"host:{k}", f"W{k}")
    if scenario.late is not None:
        late = scenario.workers
        world.after(scenario.late, lambda: start_worker(late, f"host:{late}", f"W{late}"))
    for k in range(scenario.clients):
        outcome.clients.append(_client(k, scenario, registration, world, dispatcher, by_address))
    _plan_faults(outcome, by_address, start_worker)
    outcome.in_time = _run_to_the_end(outcome, LIMIT)
    if outcome.in_time:
        world.note("       everybody has left")
        # A client that crashed or closed without a session is released when its lease ends. What
        # others give back is still on its way.
        faulty = scenario.client_crash is not None or scenario.breaks
        world.run(lambda: False, world.now + (LEASE + 1 if faulty else 1))
        last = _client(scenario.clients, scenario, registration, world, dispatcher, by_address)
        outcome.clients.append(last)
        outcome.in_time = _run_to_the_end(outcome, world.now + LIMIT)
    if outcome.in_time:
        world.run(lambda: False, world.now + SETTLED)
        outcome.leftovers = _leftovers(outcome)
    return outcome


def _run_to_the_end(outcome: Outcome, limit: float) -> bool:
    """Run until no client reads; return whether that was before the time `limit`."""
    return outcome.world.run(lambda: all(c.state != "reading" for c in outcome.clients), limit)


def _registration(plan: Plan) -> m.RegisterDataset:
    splits = {
        x.number: ListedSplits() if x.per_file else IndexSplits(x.count) for x in plan.sources
    }
    sources = [Source(number, "sim", "", how) for number, how in splits.items()]
    tree = msgspec.msgpack.encode([WireNode("sim", [], msgspec.Raw(b"\x80"), {}, "")])
    spec = spec_to_wire(UnknownSpec())
    structure = structure_of(tree)
    return m.RegisterDataset(
        "digest", tree, spec, Options(), sources, dataset_id="sim", structure=structure
    )


def _client(
    k: int,
    scenario: Scenario,
    registration: m.RegisterDataset,
    world: World,
    dispatcher: SimDispatcher,
    workers: dict[str, SimWorker],
) -> SimClient:
    """Return client `k`; only the last of the scenario may stop early."""
    options = ReadOptions(
        processing_mode=ShardingPolicy.DYNAMIC if scenario.dynamic else ShardingPolicy.OFF,
        dispatcher_address="sim",
        max_outstanding_requests=scenario.max_outstanding_requests,
        connect_timeout=30.0,
    )
    hello = m.ClientHello(1, 1, "sim", "job", options.job_parameters, (0,), named=True)
    if not scenario.registered:
        hello = msgspec.structs.replace(hello, dataset_id="", registration=registration)
    last = k == scenario.clients - 1
    return SimClient(
        world,
        f"C{k}",
        dispatcher,
        workers,
        hello,
        options,
        scenario.client_seconds,
        scenario.stop_after if last else None,
    )


def _plan_faults(
    outcome: Outcome,
    by_address: dict[str, SimWorker],
    start_worker: Callable[[int, str, str], None],
) -> None:
    scenario, world = outcome.scenario, outcome.world
    for crash in scenario.crashes:
        _plan_crash(crash, world, outcome.dispatcher, by_address, start_worker)
    for drain in scenario.drains:
        _plan_drain(drain, world, by_address, start_worker)
    if scenario.client_crash is not None:
        world.after(scenario.client_crash, outcome.clients[-1].crash)
    if scenario.breaks:
        _plan_breaks(outcome, 1 / scenario.breaks)


def _plan_crash(
    crash: Crash,
    world: World,
    dispatcher: SimDispatcher,
    by_address: dict[str, SimWorker],
    start_worker: Callable[[int, str, str], None],
) -> None:
    address = f"host:{crash.worker}"

    def die() -> None:
        identity = by_address[address].identity
        by_address[address].crash()
        if crash.reported and identity is not None:
            world.after(0.05, lambda: dispatcher.report_death(identity))
        if crash.back is not None:
            world.after(crash.back, come_back)

    def come_back() -> None:
        new = address if crash.same_address else f"{address}b"
        start_worker(crash.worker, new, f"W{crash.worker}b")

    world.after(crash.at, die)


def _plan_drain(
    drain: Drain,
    world: World,
    by_address: dict[str, SimWorker],
    start_worker: Callable[[int, str, str], None],
) -> None:
    address = f"host:{drain.worker}"
    world.after(drain.at, lambda: by_address[address].drain(GRACE))
    if drain.back is not None:
        name = f"W{drain.worker}b"
        world.after(drain.at + drain.back, lambda: start_worker(drain.worker, f"{address}b", name))


def _plan_breaks(outcome: Outcome, pause: float) -> None:
    """Break connections at random until all clients have left or 20 s have passed."""
    world = outcome.world

    def strike() -> None:
        if world.now > 20 or all(client.state != "reading" for client in outcome.clients):
            return
        alive = [link for link in world.links if link.alive]
        if alive:
            rng = world.rng
            outcome.broken += 1
            slow = 1.0 if rng.random() < 0.2 else 0.1
            rng.choice(alive).break_((rng.uniform(0, 0.1), rng.uniform(0, slow)))
        world.after(world.rng.expovariate(1 / pause), strike)

    world.after(world.rng.expovariate(1 / pause), strike)


def _leftovers(outcome: Outcome) -> list[str]:
    """Return the state that is left after all clients have ended."""
    state = outcome.dispatcher.logic.state
    held: dict[str, Collection[object]] = {
        "D clients": state.clients,
        "D tasks": state.tasks,
        "D iterations": state.iterations,
        "D jobs": state.jobs,
        "D waiting": outcome.dispatcher.logic.assigner.waiting,
    }
    for worker in outcome.workers:
        if worker.alive:
            held[f"{worker.name} tasks"] = worker.logic.tasks
            held[f"{worker.name} connections"] = worker.logic.connections
            held[f"{worker.name} pipelines"] = worker.pipelines
    for client in outcome.clients:
        if client.open_connections:
            held[f"{client.name} connections"] = [client.open_connections]
    return [f"{what}: {list(values)}" for what, values in held.items() if values]
