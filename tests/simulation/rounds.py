"""Coordinated reads: their scenarios, and what must hold in every round."""

import dataclasses
import random
from collections.abc import Iterator
from functools import partial

from stoker.service.client.orders.round_order import RoundOrder
from tests.simulation import invariants
from tests.simulation.client import SimClient
from tests.simulation.cluster import Cluster
from tests.simulation.faults import (
    Cancel,
    ClientCrash,
    Drain,
    draw_faults,
    stops_dispatcher,
)
from tests.simulation.scenario import ClientPlan, Scenario, draw
from tests.simulation.simulation import Outcome

SHORT_GRACE = 0.5
"""Time in which consumers that read on cannot read all that a worker has computed, but can agree on
a round and receive what they lack until then."""

SLOW_SECONDS = 0.2
"""Time of slow consumers to consume an element."""


def draw_rounds(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = random.Random(f"rounds {seed}")
    base = draw(seed)
    while base.static is not None or base.cache_bytes is not None:
        base = draw(rng.getrandbits(32))
    count = rng.choice([1, 2, 2, 3, 4])
    kind, faults = draw_faults(rng, len(base.workers), count)
    # Consumers that have failed, and those of a job begun anew, leave the others waiting.
    while kind == "replaced" or any(isinstance(fault, Cancel) for fault in faults):
        kind, faults = draw_faults(rng, len(base.workers), count)
    lockstep = rng.random() < 0.5
    total = len(base.plan.elements())
    clients = tuple(
        ClientPlan(
            rng.uniform(0, 1.0) if not lockstep and rng.random() < 0.3 else 0.0,
            rng.randint(1, max(1, total // count))
            if not lockstep and rng.random() < 0.05
            else None,
        )
        for _ in range(count)
    )
    if kind == "drain" and not any(client.joins for client in clients):
        faults = tuple(
            dataclasses.replace(fault, asked=False, grace=SHORT_GRACE)
            for fault in faults
            if isinstance(fault, Drain)
        )
        limit = rng.choice([1, 2, 3])
        base = dataclasses.replace(
            base, client_seconds=SLOW_SECONDS, max_outstanding_requests=limit
        )
    successors = tuple(
        (fault.client, fault.at + rng.choice([0.01, 0.5, 6.0]))
        for fault in faults
        if isinstance(fault, ClientCrash) and (fault.at < 3.0 or rng.random() < 0.8)
    )
    journaled = stops_dispatcher(faults) or rng.random() < 0.7
    return dataclasses.replace(
        base,
        kind=kind,
        faults=faults,
        clients=clients,
        slowest_commit=rng.choice([0.003, 0.02, 0.1, 0.3]) if journaled else None,
        # All consumers must be able to read all tasks, also those that are about to be lost.
        tasks_per_client=rng.choice([1, 2, 128, 128, 128]),
        num_consumers=count,
        lockstep=lockstep,
        successors=successors,
    )


# ── consumers ────────────────────────────────────────────────────────────────────────────────────
class RoundsCluster(Cluster):
    """A cluster with consumers of a coordinated read, which may wait for one another."""

    def __init__(
        self, scenario: Scenario, rng: random.Random, trace: list[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, trace)
        for consumer, at in scenario.successors:
            number = 10 * scenario.num_consumers + consumer
            self.world.at(max(at, 1.1), partial(self.start_client, number))

    def start_client(self, number: int) -> None:
        super().start_client(number)
        if self.scenario.lockstep:
            client = self.clients[-1]
            self.keep_step(client, lambda: _step(client), self._steps)

    def _steps(self) -> Iterator[int]:
        """Yield the next steps of the consumers that read."""
        return (_step(x) for x in self.clients if x.state == "reading")


def _step(client: SimClient) -> int:
    """Return the number of the consumer's next step."""
    order = _order(client)
    return order.step - order.owed


def _order(client: SimClient) -> RoundOrder:
    order = client.logic._order
    assert isinstance(order, RoundOrder)
    return order


def _index(client: SimClient) -> int:
    index = client.logic.registration.hello.consumer_index
    assert index is not None
    return index


# ── invariants ───────────────────────────────────────────────────────────────────────────────────
def violations(outcome: Outcome) -> list[str]:
    """Return the violated invariants, as sentences."""
    if not outcome.in_time:
        return invariants.violations(outcome)
    checks = [_ends_well, _bounded, invariants._nothing_left]
    checks += [invariants._nothing_begun_twice, invariants._replayed]
    checks += [_ends_together, _elements_in_place, _nothing_twice, _whole, _complete, _nothing_lost]
    return [found for check in checks for found in check(outcome)]


def _ends_well(outcome: Outcome) -> list[str]:
    """Check as for other reads, but a consumer may be replaced by its successor."""
    texts = ("took the place of this one", "Unknown iteration client id")
    lost = "nothing is left that could take their place"
    replaced = [f"{x.name} failed:" for x in outcome.cluster.clients if lost in str(x.error)]
    replaced += [
        f"{x.name} failed:"
        for x in outcome.cluster.clients
        if any(text in str(x.error) for text in texts)
        and any(_index(x) == consumer for consumer, _ in outcome.scenario.successors)
    ]
    found = invariants._ends_well(outcome)
    return [text for text in found if not text.startswith(tuple(replaced))]


def _bounded(outcome: Outcome) -> list[str]:
    """Check as for other reads, but what a worker that drains has promised counts not."""
    return [] if outcome.scenario.drains else invariants._bounded(outcome)


def _ended(outcome: Outcome) -> list[SimClient]:
    """Return the consumers that have read to the end, of the last dispatcher."""
    final = f"C{outcome.scenario.num_consumers}"  # it comes after all
    clients = [x for x in outcome.cluster.clients if x.name != final]
    last = outcome.cluster.clients[-1].journal_id
    return [x for x in clients if x.state == "ended" and x.journal_id == last]


def _ends_together(outcome: Outcome) -> list[str]:
    """Check that consumers that were there from the beginning have made equally many steps."""
    restarted = [index for index, _ in outcome.scenario.successors]
    first = [
        x
        for x in _ended(outcome)
        if _index(x) not in restarted and not outcome.scenario.may_lose_lease(x.name)
    ]
    steps = {x.name: len(x.delivery.steps) for x in first}
    return [f"unequal numbers of steps: {steps}"] if len(set(steps.values())) > 1 else []


def _elements_in_place(outcome: Outcome) -> list[str]:
    """Check that the consumer with index i gets element i of each run, in the order of runs."""
    scenario = outcome.scenario
    expected, count = scenario.plan.elements(), scenario.num_consumers
    found = []
    for client in outcome.cluster.clients:
        latest: dict[int, int] = {}
        for task_id, run, element, repeated in client.delivery.steps:
            if repeated:
                continue
            if run <= latest.get(task_id, -1):
                found.append(f"{client.name} got run {run} of task {task_id} late")
            latest[task_id] = run
            position = run * count + _index(client)
            if not scenario.dynamic and element != expected[position]:
                found.append(f"{client.name} got {element} as element {position}")
    return found


def _nothing_twice(outcome: Outcome) -> list[str]:
    """Check that no element is yielded twice by consumers that have read to the end."""
    seen: dict[object, str] = {}
    found = []
    for client in _ended(outcome):
        for task_id, run, element, repeated in client.delivery.steps:
            keys: list[object] = [(task_id, run, _index(client))]
            if outcome.scenario.dynamic:
                keys.append(element)
            for key in [] if repeated else keys:
                if key in seen:
                    found.append(f"{key} was yielded by {seen[key]} and {client.name}")
                seen[key] = client.name
    return found


def _losses(outcome: Outcome) -> int:
    """Return the number of tasks that were lost, or may have been."""
    return sum(len(worker.ids) for worker in outcome.cluster.workers)


def _whole(outcome: Outcome) -> list[str]:
    """Check that each step has elements of one run, except those in flight at a loss."""
    scenario, clients = outcome.scenario, _ended(outcome)
    if len(clients) < 2:
        return []
    steps: dict[int, set[tuple[int, int]]] = {}
    for client in clients:
        last = _step(client)
        for k, (task_id, run, _, _) in enumerate(reversed(client.delivery.steps)):
            steps.setdefault(last - 1 - k, set()).add((task_id, run))
    mixed, shortest = sum(len(runs) > 1 for runs in steps.values()), len(steps)
    counted = sum(_order(client).mixed_rounds for client in clients)
    if counted < mixed:
        return [f"{mixed} steps of {shortest} are mixed, and {counted} were counted"]
    if scenario.lossless and (mixed or counted):
        return [f"{mixed} steps of {shortest} are mixed, though nothing was lost"]
    crashes = any(isinstance(fault, ClientCrash) for fault in scenario.faults)
    if scenario.lockstep and not crashes and mixed > _losses(outcome):
        return [f"{mixed} steps of {shortest} are mixed, with {_losses(outcome)} losses"]
    return []


def _hurried(outcome: Outcome) -> bool:
    """Return whether a worker may stop before consumers have read all that it has computed."""
    return any(
        isinstance(fault, Drain) and fault.grace == SHORT_GRACE for fault in outcome.scenario.faults
    )


def _nothing_lost(outcome: Outcome) -> list[str]:
    """Check that consumers count no loss if nothing is lost."""
    if not outcome.scenario.lossless or _hurried(outcome):
        return []
    totals = [client.logic.losses.totals for client in _ended(outcome)]
    lost = sum(each["elements_lost"] + each["splits_lost"] for each in totals)
    return [f"{lost} elements or splits were counted, though nothing was lost"] if lost else []


def _complete(outcome: Outcome) -> list[str]:
    """Check that all elements but those of short last runs are yielded if nothing is lost."""
    scenario = outcome.scenario
    count, clients = scenario.num_consumers, _ended(outcome)
    everybody = len(clients) == count and len(outcome.cluster.clients) == count + 1
    if not scenario.lossless or not everybody:
        return []
    runs: dict[int, set[int]] = {}
    for client in clients:
        for task_id, run, _, repeated in client.delivery.steps:
            if repeated:
                return [f"{client.name} repeated an element, though nothing was lost"]
            runs.setdefault(task_id, set()).add(run)
    total = len(scenario.plan.elements())
    if scenario.dynamic:
        if _hurried(outcome):
            return []
        got = sum(len(x) * count for x in runs.values())
        tasks = sum(len(worker.ids) for worker in outcome.cluster.workers)
        short = total - got
        if short > tasks * (count - 1):
            return [f"{short} of {total} elements were not yielded by {tasks} tasks"]
        return []
    if scenario.drains:
        return []
    return [
        f"{len(x)} runs of task {task_id} were yielded, of {total // count}"
        for task_id, x in runs.items()
        if len(x) != total // count
    ]
