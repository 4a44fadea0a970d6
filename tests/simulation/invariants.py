"""Invariants of every simulated run."""

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from stoker.errors import CancelledError, NotFoundError, PermissionDeniedError, UnavailableError
from tests.simulation import cache
from tests.simulation.client import SimClient
from tests.simulation.pipeline import CHUNK_BYTES, Element
from tests.simulation.scenario import Scenario
from tests.simulation.shards import check_shards, check_shards_of_tasks
from tests.simulation.simulation import Outcome

Check: TypeAlias = Callable[[Outcome], list[str]]
"""Signature of an invariant: it returns its violations, as sentences."""


def violations(outcome: Outcome) -> list[str]:
    """Return the violated invariants, as sentences."""
    if not outcome.in_time:
        return not_ended(outcome)
    checks: list[Check] = [
        _ends_well,
        _bounded,
        _nothing_left,
        _nothing_begun_twice,
        _registered_once,
        _replayed,
        _asked_have_left,
    ]
    checks += _of_tasks(outcome.scenario)
    if outcome.scenario.cancelled:
        checks += [_cancelled_read_no_more, _delivered_once_before_and_after]
    else:
        checks += _of_epoch(outcome.scenario)
    return [found for check in checks for found in check(outcome)]


def not_ended(outcome: Outcome) -> list[str]:
    """Return which clients still read, as a sentence."""
    clients = [x for x in outcome.cluster.clients if x.state == "reading"]
    waiting = [f"{c.name} waits for {c.logic.waiting_for()}" for c in clients]
    return [f"the epoch has not ended: {'; '.join(waiting)}"]


def _of_tasks(scenario: Scenario) -> list[Check]:
    """Return the invariants of each task, which hold also if the job is cancelled."""
    if scenario.cache_bytes is not None:
        return cache.OF_TASKS
    if scenario.static is not None:
        return [_memory_bounded, check_shards_of_tasks]
    return [_memory_bounded] if scenario.dynamic else [_memory_bounded, _off_tasks]


def _of_epoch(scenario: Scenario) -> list[Check]:
    """Return the invariants of an epoch that clients read to its end."""
    if scenario.cache_bytes is not None:
        return cache.OF_EPOCH
    if scenario.static is not None:
        return [check_shards]
    return [_dynamic if scenario.dynamic else _off]


def _ends_well(outcome: Outcome) -> list[str]:
    """Check that clients end, stop when their user does, or crash when the scenario does."""
    return [
        f"{client.name} failed: {client.error!r}"
        for client in outcome.cluster.clients
        if client.state == "failed"
        and not _was_released(outcome, client)
        and not _was_of_cut_journal(outcome, client)
        and not _was_forgotten(outcome, client)
        and not _was_cancelled(outcome, client)
    ]


def _was_released(outcome: Outcome, client: SimClient) -> bool:
    """Return whether a client failed because it could not send heartbeats for too long."""
    error = client.error
    unknown = isinstance(error, NotFoundError) and "Unknown iteration client id" in str(error)
    return unknown and outcome.scenario.may_lose_lease(client.name)


def _was_of_cut_journal(outcome: Outcome, client: SimClient) -> bool:
    """Return whether a client may have joined while a journal was served that had lost its end."""
    disk = outcome.cluster.dispatcher.disk
    return (
        disk is not None
        and disk.restored > 0
        and isinstance(client.error, NotFoundError | PermissionDeniedError)
    )


def _was_forgotten(outcome: Outcome, client: SimClient) -> bool:
    """Return whether a client failed because its dispatcher was replaced by another."""
    return outcome.scenario.replaced and isinstance(client.error, UnavailableError)


def _was_cancelled(outcome: Outcome, client: SimClient) -> bool:
    """Return whether a client failed because its job was cancelled."""
    return outcome.scenario.cancelled and isinstance(client.error, CancelledError)


def _bounded(outcome: Outcome) -> list[str]:
    """Check that `max_outstanding_requests` bounds the elements sent and not yielded."""
    limit = outcome.scenario.max_outstanding_requests
    return [
        f"{client.name} held {client.most_outstanding} elements, more than {limit}"
        for client in outcome.cluster.clients
        if limit is not None and client.most_outstanding > limit
    ]


def _memory_bounded(outcome: Outcome) -> list[str]:
    """Check that `buffer_bytes` bounds what a worker computes ahead, and what it has sent.

    What clients give back is buffered besides.
    """
    limit = outcome.scenario.buffer_bytes + CHUNK_BYTES
    clients = len(outcome.cluster.clients)
    found = [
        f"{worker.name} had sent {worker.most_sent} bytes to a reader, more than {limit}"
        for worker in outcome.cluster.workers
        if worker.most_sent > limit
    ]
    found += [
        f"{worker.name} buffered {worker.most_buffered} bytes, more than {limit} for each client"
        for worker in outcome.cluster.workers
        if worker.most_buffered > limit * (1 + clients)
    ]
    return found


def _nothing_left(outcome: Outcome) -> list[str]:
    return [f"left behind: {what}" for what in outcome.leftovers]


def _nothing_begun_twice(outcome: Outcome) -> list[str]:
    if outcome.scenario.journal_cut:  # what was sent to a split's task may not have arrived
        return []
    return [f"begun twice: {what}" for what in outcome.cluster.dispatcher.begun_twice]


def _registered_once(outcome: Outcome) -> list[str]:
    """Check that no worker loses its lease unless it cannot send heartbeats."""
    if not outcome.scenario.lossless:
        return []
    return [
        f"{worker.name} was registered as {sorted(worker.ids)}"
        for worker in outcome.cluster.workers
        if len(worker.ids) > 1
    ]


def _replayed(outcome: Outcome) -> list[str]:
    """Check that replays of the journal lead to the live state."""
    return outcome.cluster.dispatcher.differences[:1]


def _asked_have_left(outcome: Outcome) -> list[str]:
    """Check that workers leave that an operator has asked to drain."""
    cluster = outcome.cluster
    return [f"{worker.name} has not left" for worker in cluster.must_have_left if worker.alive]


def _cancelled_read_no_more(outcome: Outcome) -> list[str]:
    """Check that the clients of a cancelled job read nothing of the job that others begin anew."""
    if outcome.scenario.replaced:
        return []
    return [
        f"{client.name} read tasks {sorted(others)}, though its job was cancelled"
        for keys, tasks in outcome.cluster.dispatcher.cancelled
        for client in outcome.cluster.clients
        if client.key in keys and (others := client.delivery.by_task.keys() - tasks)
    ]


def _delivered_once_before_and_after(outcome: Outcome) -> list[str]:
    """Check that each cancelled job, and the last job, delivers nothing twice.

    Under OFF each task delivers the whole dataset; shards are read again after a loss.
    """
    scenario = outcome.scenario
    once = scenario.dynamic or (
        scenario.static is not None and scenario.lossless and not scenario.drains
    )
    if not once or scenario.cache_bytes is not None or scenario.replaced:
        return []
    seen: set[int] = set()
    jobs = []
    for tasks in outcome.cluster.dispatcher.cancelled_tasks:
        jobs.append(tasks - seen)
        seen |= tasks
    delivered = [
        (task_id, x)
        for client in outcome.cluster.clients
        for task_id, elements in client.delivery.by_task.items()
        for x in elements
    ]
    parts = [[x for task_id, x in delivered if task_id in tasks] for tasks in jobs]
    parts.append([x for task_id, x in delivered if task_id not in seen])
    return [
        f"delivered {n} times: {x}" for part in parts for x, n in Counter(part).items() if n > 1
    ]


def _dynamic(outcome: Outcome) -> list[str]:
    """Check that no element comes twice, and that none is missing or its loss is counted.

    Each dispatcher without a journal begins the job anew.
    """
    journals = dict.fromkeys(client.journal_id for client in outcome.cluster.clients)
    last = outcome.cluster.clients[-1].journal_id
    found = []
    for journal_id in journals:
        clients = [x for x in outcome.cluster.clients if x.journal_id == journal_id]
        found += _dynamic_of(outcome, clients, ended=journal_id == last)
    return found


def _dynamic_of(outcome: Outcome, clients: list[SimClient], *, ended: bool) -> list[str]:
    expected = Counter(outcome.scenario.plan.elements())
    got = Counter(x for client in clients for x in client.delivery.elements)
    found = [f"delivered {n} times: {x}" for x, n in got.items() if n > 1]
    found += [f"delivered, but not of the dataset: {x}" for x in got - expected]
    missing = sorted(expected - got)
    if missing and outcome.scenario.lossless:
        found.append(f"never delivered, though no worker or client was lost: {missing}")
    counted = Counter[str]()
    for client in clients:
        counted.update(client.logic.losses.totals)
    # The number of elements of a lost split is not known to the dispatcher.
    if ended and not counted["splits_lost"] and len(missing) > counted["elements_lost"]:
        found.append(f"counted {counted['elements_lost']} elements as lost, but lost {missing}")
    for client in clients if ended and not counted["splits_lost"] else ():
        told = client.logic.losses.totals["elements_lost"]
        if client.state == "ended" and client.logic.final_losses.known and len(missing) > told:
            found.append(f"{client.name} ended with {told} elements lost, but lost are {missing}")
    return found


def _off_tasks(outcome: Outcome) -> list[str]:
    """Check that each task yields elements of the dataset in order, none of them twice."""
    expected = outcome.scenario.plan.elements()
    found = [
        f"task {task_id} delivered twice: {got - Counter(expected)}"
        for task_id, got in _delivered_by_task(outcome).items()
        if got - Counter(expected)
    ]
    # With more clients, what one gives back may arrive after the next has begun to read.
    if len(outcome.scenario.clients) == 1:
        for task_id, elements in outcome.cluster.clients[0].delivery.by_task.items():
            if elements != expected[: len(elements)]:
                found.append(f"task {task_id} is out of order: {elements}")
    return found


def _delivered_by_task(outcome: Outcome) -> dict[int, Counter[Element]]:
    by_task: dict[int, Counter[Element]] = {}
    for client in outcome.cluster.clients:
        for task_id, elements in client.delivery.by_task.items():
            by_task.setdefault(task_id, Counter()).update(elements)
    return by_task


def _off(outcome: Outcome) -> list[str]:
    """Check that each task yields the whole dataset, or a part after a loss."""
    scenario = outcome.scenario
    expected = scenario.plan.elements()
    found = []
    whole = False
    for task_id, got in _delivered_by_task(outcome).items():
        missing = Counter(expected) - got
        whole = whole or not missing
        # A worker that drains computes no more.
        if missing and scenario.lossless and not scenario.drains:
            found.append(f"task {task_id} never delivered {sorted(missing)}")
    if expected and not whole and scenario.lossless:
        found.append("no task was read to its end")
    return found
