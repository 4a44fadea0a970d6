"""The execution of the scenario of a seed."""

import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.cluster import Cluster
from tests.simulation.faults import last_end
from tests.simulation.injection import compact, schedule
from tests.simulation.scenario import Scenario

LIMIT_SECONDS = 120.0
"""Simulated time within which every epoch must end."""


@dataclass
class Outcome:
    """The outcome of a run.

    Attributes:
        in_time: all clients have ended within the limit.
        leftovers: the state that is left when all should be released.
    """

    scenario: Scenario
    cluster: Cluster
    in_time: bool = False
    leftovers: list[str] = field(default_factory=list)

    def contents(self) -> Counter[str]:
        """Return what a summary counts: 1 for each property of the scenario, and events."""
        found = self.scenario.contents()
        disk = self.cluster.dispatcher.disk
        if disk is not None:
            found["units lost by crashes"] += disk.lost
            found["groups torn"] += disk.torn
            found["compactions"] += disk.compactions
            found["journals refused and restored"] += disk.restored
        found["restarts of the dispatcher"] += self.cluster.dispatcher.starts - 1
        found["connections broken"] += self.cluster.broken
        found["workers that must leave as they were asked"] += len(self.cluster.must_have_left)
        if self.scenario.num_consumers:
            steps = [len(client.delivery.steps) for client in self.cluster.clients]
            found["rounds"] += max(steps, default=0)
        found["clients whose job was cancelled"] += sum(
            len(keys) for keys, _ in self.cluster.dispatcher.cancelled
        )
        return found


@dataclass(frozen=True)
class Family:
    """Runs of one kind.

    Attributes:
        draw: returns the scenario of a seed.
        cluster: the processes of a run.
        violations: returns the violated invariants of a run, as sentences.
    """

    draw: Callable[[int], Scenario]
    cluster: type[Cluster]
    violations: Callable[[Outcome], list[str]]

    def check(self, seed: int, trace: list[str] | None = None) -> tuple[list[str], Counter[str]]:
        """Run a seed; return what it violated, or the exception that it raised, and its contents.

        Args:
            seed: the seed.
            trace: receives the story of the run: messages and faults, with their times.
        """
        try:
            outcome = self.run(seed, trace)
            return self.violations(outcome), outcome.contents()
        except Exception:  # one of the logic is a finding
            return [traceback.format_exc()], Counter()

    def run(self, seed: int, trace: list[str] | None = None) -> Outcome:
        """Run the scenario of a seed to its end, and until no state should be left."""
        scenario = self.draw(seed)
        return run(scenario, self.cluster(scenario, random.Random(f"network {seed}"), trace))


def run(scenario: Scenario, cluster: Cluster) -> Outcome:
    """Run a scenario in a new cluster, as `Family.run`."""
    world, outcome = cluster.world, Outcome(scenario, cluster)
    for k, worker in enumerate(scenario.workers):
        world.at(worker.joins, partial(cluster.start_worker, k, f"host:{k}"))
    for k, client in enumerate(scenario.clients):
        world.at(client.joins, partial(cluster.start_client, k))
    for fault in scenario.faults:
        schedule(fault, cluster)
    compact(cluster)
    outcome.in_time = world.run(lambda: cluster.all_left, LIMIT_SECONDS)
    if outcome.in_time:
        world.note("       everybody has left")
        # A client that was lost, or closed without a session, is released when its lease ends.
        # What others give back is still on its way.
        world.run(lambda: False, max(world.now, last_end(scenario.faults)) + scenario.lease_seconds)
        cluster.start_client(len(scenario.clients))
        outcome.in_time = world.run(lambda: cluster.all_left, world.now + LIMIT_SECONDS)
    if outcome.in_time:
        world.run(lambda: False, world.now + scenario.kept_seconds + scenario.lease_seconds)
        outcome.leftovers = cluster.leftovers()
        cluster.dispatcher.compare()
    return outcome
