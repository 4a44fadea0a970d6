"""Invariants of every simulated run."""

from collections import Counter

from tests.simulation.pipeline import Element
from tests.simulation.scenario import Outcome


def violations(outcome: Outcome) -> list[str]:
    """Return the violated invariants, as sentences."""
    if not outcome.in_time:
        waiting = [f"{c.name} waits for {c.logic.waiting_for()}" for c in outcome.clients]
        return [f"the epoch has not ended: {'; '.join(waiting)}"]
    checks = [_ends_well, _bounded, _nothing_left]
    checks.append(_dynamic if outcome.scenario.dynamic else _off)
    return [found for check in checks for found in check(outcome)]


def _ends_well(outcome: Outcome) -> list[str]:
    """Check that clients end, stop when their user does, or crash when the scenario does."""
    return [
        f"{client.name} failed: {client.error!r}"
        for client in outcome.clients
        if client.state == "failed"
    ]


def _bounded(outcome: Outcome) -> list[str]:
    """Check that `max_outstanding_requests` bounds the elements sent and not yielded."""
    limit = outcome.scenario.max_outstanding_requests
    return [
        f"{client.name} held {client.most_outstanding} elements, more than {limit}"
        for client in outcome.clients
        if limit is not None and client.most_outstanding > limit
    ]


def _nothing_left(outcome: Outcome) -> list[str]:
    return [f"left behind: {what}" for what in outcome.leftovers]


def _dynamic(outcome: Outcome) -> list[str]:
    """Check that no element comes twice, and that none is missing or its loss is counted."""
    expected = Counter(outcome.scenario.plan.elements())
    got = Counter(x for client in outcome.clients for x in client.delivery.elements)
    found = [f"delivered {n} times: {x}" for x, n in got.items() if n > 1]
    found += [f"delivered, but not of the dataset: {x}" for x in got - expected]
    missing = sorted(expected - got)
    if missing and outcome.scenario.lossless:
        found.append(f"never delivered, though at most connections broke: {missing}")
    elif missing and not any(
        client.logic.losses.totals["splits_lost"] or client.logic.losses.totals["elements_lost"]
        for client in outcome.clients
    ):
        found.append(f"lost in silence: {missing}")
    return found


def _off(outcome: Outcome) -> list[str]:
    """Check that each task yields the dataset in order: once, or in part after a loss."""
    scenario = outcome.scenario
    expected = scenario.plan.elements()
    by_task: dict[int, list[list[Element]]] = {}
    for client in outcome.clients:
        for task_id, elements in client.delivery.by_task.items():
            by_task.setdefault(task_id, []).append(elements)
    found = []
    whole = False
    for task_id, parts in by_task.items():
        together = Counter(x for part in parts for x in part)
        missing = Counter(expected) - together
        if together - Counter(expected):
            found.append(f"task {task_id} delivered twice: {together - Counter(expected)}")
        whole = whole or not missing
        # A worker that drains computes no more.
        if missing and scenario.lossless and not scenario.drains:
            found.append(f"task {task_id} never delivered {sorted(missing)}")
        # What a client gives back may arrive after the next has begun to read.
        alone = scenario.clients == 1 and scenario.stop_after is None
        if alone and parts[0] != expected[: len(parts[0])]:
            found.append(f"task {task_id} is out of order: {parts[0]}")
    if expected and not whole and scenario.lossless:
        found.append("no task was read to its end")
    return found
