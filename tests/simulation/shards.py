"""Invariants of simulated runs with static sharding."""

from collections import Counter
from collections.abc import Iterator

from stoker.dataset.tree.splits import ShardBy
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.simulation.client import SimClient
from tests.simulation.pipeline import Element
from tests.simulation.shard_plan import shard_elements
from tests.simulation.simulation import Outcome


def check_shards(outcome: Outcome) -> list[str]:
    """Check that every shard was read whole.

    Elements come twice only if a shard was read again, after a loss or a worker that drained.
    """
    scenario, clients, shards = outcome.scenario, outcome.cluster.clients, _shards(outcome)
    alone = _alone(outcome)
    found = []
    got = Counter(x for client in clients for x in client.delivery.elements)
    whole = Counter(scenario.plan.elements())
    if got - Counter(dict.fromkeys(whole, sum(got.values()))):
        found.append(f"delivered, but not of the dataset: {got - whole}")
    if scenario.lossless:
        if whole - got:
            found.append(f"never delivered, though nothing was lost: {sorted(whole - got)}")
        if not scenario.drains and got - whole:
            found.append(f"delivered twice, though nothing was lost: {sorted(got - whole)}")
    if alone is not None and alone.state == "ended":
        parts = [set(elements) for elements in alone.delivery.by_task.values()]
        found += [
            f"shard {k} was not read whole by any task"
            for k, elements in enumerate(shards)
            if elements and set(elements) not in parts
        ]
    return found


def check_shards_of_tasks(outcome: Outcome) -> list[str]:
    """Check that tasks read shards in order; it holds also if the job is cancelled."""
    shards, alone = _shards(outcome), _alone(outcome)
    return [
        text
        for client in outcome.cluster.clients
        for text in _out_of_order(client, shards, in_order=client is alone)
    ]


def _shards(outcome: Outcome) -> list[list[Element]]:
    scenario = outcome.scenario
    by = ShardBy.FILES if scenario.static is ShardingPolicy.FILE else ShardBy.ELEMENTS
    workers = len(scenario.workers)
    return [shard_elements(scenario.plan, by, workers, k) for k in range(workers)]


def _alone(outcome: Outcome) -> SimClient | None:
    """Return the client that reads without others."""
    return outcome.cluster.clients[0] if len(outcome.scenario.clients) == 1 else None


def _out_of_order(
    client: SimClient, shards: list[list[Element]], *, in_order: bool
) -> Iterator[str]:
    """Yield the tasks of a client that are no part of one shard, or not its beginning `in_order`.

    With more clients, elements that one gives back may arrive after later ones.
    """
    for task_id, elements in client.delivery.by_task.items():
        places = {x: (k, n) for k, shard in enumerate(shards) for n, x in enumerate(shard)}
        at = [places.get(x, (-1, -1)) for x in elements]
        if len({shard for shard, _ in at}) > 1:
            yield f"task {task_id} delivered elements of several shards: {elements}"
        if len(set(elements)) < len(elements):
            yield f"task {task_id} delivered elements twice: {elements}"
        if in_order and [n for _, n in at] != list(range(len(at))):
            yield f"task {task_id} is out of order: {elements}"
