"""Invariants of a job with a cross-trainer cache."""

from collections import Counter
from collections.abc import Callable

from tests.simulation.client import SimClient
from tests.simulation.pipeline import Element
from tests.simulation.simulation import Outcome


def _bounded(outcome: Outcome) -> list[str]:
    """Check that what workers keep for other trainers is bounded."""
    limit = outcome.scenario.cache_bytes
    assert limit is not None
    return [
        f"{worker.name} kept {worker.most_cached} bytes in its cache, more than {limit}"
        for worker in outcome.cluster.workers
        if worker.most_cached > limit
    ]


def _each_once(outcome: Outcome) -> list[str]:
    """Check that no trainer gets an element of a task twice, or one that was not computed."""
    found = []
    for task_id, computed in _computed(outcome).items():
        for trainer, clients in _clients(outcome).items():
            got = Counter(x for client in clients for x in client.delivery.by_task.get(task_id, []))
            twice = [x for x, count in got.items() if count > 1]
            if twice:
                found.append(f"{trainer} got elements of task {task_id} twice: {sorted(twice)}")
            if unknown := got.keys() - set(computed):
                found.append(f"{trainer} got what task {task_id} did not compute: {unknown}")
    return found


def _in_order(outcome: Outcome) -> list[str]:
    """Check that a trainer with one client gets the elements of a task in order.

    What is missing between them was skipped, and is counted; what left the window between two
    readings of a task was not, since the trainer did not read it then.
    """
    computed = _computed(outcome)
    found = []
    for trainer, clients in _clients(outcome).items():
        if len(clients) > 1:
            continue
        [client] = clients
        missing = 0
        for task_id, elements in client.delivery.by_task.items():
            places = {element: place for place, element in enumerate(computed[task_id])}
            got = [places[element] for element in elements]
            if got != sorted(got):
                found.append(f"{trainer} got elements of task {task_id} out of order: {got}")
        for (task_id, _), elements in client.delivery.by_reading.items():
            places = {element: place for place, element in enumerate(computed[task_id])}
            missing += places[elements[-1]] - places[elements[0]] + 1 - len(elements)
        counted = client.logic._counts.new.get("elements_skipped", 0)
        if missing > counted:
            found.append(f"{trainer} misses {missing} elements, but counted {counted} as skipped")
        if missing and outcome.scenario.cache_bytes == 10**6:
            found.append(f"{trainer} misses {missing} elements of a cache that was never full")
    return found


def _shared(outcome: Outcome) -> list[str]:
    """Check that hits and misses are counted for all elements of a client that closed."""
    found = []
    for client in outcome.cluster.clients:
        counts = client.logic._counts.new
        sent = counts.get("cache_hits", 0) + counts.get("cache_misses", 0)
        if sent < len(client.delivery.elements):
            found.append(f"{client.name} got {len(client.delivery.elements)} elements: {counts}")
    return found


OF_TASKS: list[Callable[[Outcome], list[str]]] = [_bounded, _each_once]
"""Those that hold for each task, also if its job is cancelled."""

OF_EPOCH: list[Callable[[Outcome], list[str]]] = [_in_order, _shared]
"""Those of an epoch that clients read as long as they want."""


def _clients(outcome: Outcome) -> dict[str, list[SimClient]]:
    by_trainer: dict[str, list[SimClient]] = {}
    for client in outcome.cluster.clients:
        by_trainer.setdefault(client.logic._trainer, []).append(client)
    return by_trainer


def _computed(outcome: Outcome) -> dict[int, list[Element]]:
    """Return the elements of all tasks, in their order."""
    return {
        task_id: elements
        for worker in outcome.cluster.workers
        for task_id, elements in (worker.computed or {}).items()
    }
