"""Invariants of simulated deterministic epochs."""

from stoker.errors import CancelledError
from tests.simulation import invariants
from tests.simulation.faults import Breaks, last_end
from tests.simulation.positions.epoch import CHUNK_POSITIONS, EpochPlan
from tests.simulation.positions.training import Run, TrainingCluster, is_replaced
from tests.simulation.simulation import Outcome

END_SECONDS = 5.0
"""Time after the last fault in which consumers read what is left, besides that to compute it."""

BREAK_SECONDS = 20.0
"""Time until which connections break."""


def violations(outcome: Outcome) -> list[str]:
    """Return the violated invariants, as sentences."""
    if not outcome.in_time:
        return _ends_well(outcome) + invariants.not_ended(outcome)
    checks = [
        _ends_well,
        _in_order,
        _whole,
        _nothing_lost,
        _in_time,
        _requests_bounded,
        _memory_bounded,
        _spoken_well,
        invariants._nothing_left,
        _nothing_held,
        invariants._replayed,
        invariants._asked_have_left,
    ]
    return [found for check in checks for found in check(outcome)]


def _runs(outcome: Outcome) -> list[Run]:
    return _cluster(outcome).runs


def _cluster(outcome: Outcome) -> TrainingCluster:
    assert isinstance(outcome.cluster, TrainingCluster)
    return outcome.cluster


def _plan(outcome: Outcome) -> EpochPlan:
    return _cluster(outcome).scenario.epoch


def _ends_well(outcome: Outcome) -> list[str]:
    """Check that a client fails only if its job is cancelled, or another reads in its place."""
    found = []
    for run in _runs(outcome):
        client, error = run.client, run.client.error
        cancelled = outcome.scenario.cancelled and isinstance(error, CancelledError)
        if client.state == "failed" and not (cancelled or is_replaced(run)):
            found.append(f"{client.name} failed: {error!r}")
    return found


def _in_order(outcome: Outcome) -> list[str]:
    """Check that each client yields its stride of the epoch, from where it began, and to its end.

    Computed without the code of `EpochShare`.
    """
    plan, found = _plan(outcome), []
    for run in _runs(outcome):
        share, got = run.share, run.delivery.elements
        first = share.base + run.start * share.count
        end = plan.length
        end -= max(0, end - share.base) % share.together
        expected = range(first + share.index, end, share.count)
        errors = run.delivery.errors
        if got != list(expected[: len(got)]):
            found.append(f"{run.client.name} got {got}, and not {expected}")
        elif run.client.state == "ended" and len(got) < len(expected):
            found.append(f"{run.client.name} ended without {expected[len(got) :]}")
        elif errors != {x: _error(plan, x) for x in got if _error(plan, x)}:
            found.append(f"{run.client.name} got the errors {errors}")
    return found


def _error(plan: EpochPlan, position: int) -> str:
    """Return the code of the error at a position, or ""."""
    if position in plan.poisoned:
        return "PoisonedElementError"
    return "UserFunctionError" if position in plan.errors else ""


def _whole(outcome: Outcome) -> list[str]:
    """Check that the phases together yield the epoch in its order, with all their resumptions."""
    cluster = _cluster(outcome)
    plan, last, kept = cluster.scenario.epoch, cluster.scenario.phases[-1], cluster.kept
    short = (last.count - 1) if last.drop_short_step else 0
    if plan.is_endless:  # consumers stop at different steps
        kept = kept[: plan.stop]
    if kept != list(range(len(kept))) or not plan.stop - short <= len(kept) <= plan.length:
        return [f"the phases have kept {kept} of {plan.stop}"]
    return []


def _nothing_lost(outcome: Outcome) -> list[str]:
    """Check that no client counts a loss, or warns of one."""
    found = []
    for run in _runs(outcome):
        totals = {name: n for name, n in run.client.logic.losses.totals.items() if n}
        if totals:
            found.append(f"{run.client.name} counts losses: {totals}")
        found += [
            f"{run.client.name} warns: {text}"
            for text in run.client.warnings
            if "lost" in text and "Other workers compute" not in text
        ]
    return found


def _in_time(outcome: Outcome) -> list[str]:
    """Check that consumers end soon after the last fault."""
    cluster, scenario = _cluster(outcome), _cluster(outcome).scenario
    begun = max(cluster.disturbed_at, last_end(scenario.faults) + 1.15 * scenario.peer_timeout)
    if any(isinstance(fault, Breaks) for fault in scenario.faults):
        begun = max(begun, BREAK_SECONDS)
    alive = [x for x in cluster.workers if x.alive and not x.refused]
    if not alive:
        return []
    work = scenario.epoch.weights * min(worker.seconds for worker in alive) * 1.5
    pace = max(phase.pace for phase in scenario.phases)
    reading = pace * scenario.epoch.stop * scenario.client_seconds * 1.5
    until = begun + END_SECONDS + len(scenario.phases) * (work + reading)
    return [
        f"{run.client.name} read until {run.client.left_at:.2f}, and not {until:.2f}"
        for run in _runs(outcome)[:-1]
        if run.client.left_at > until
    ]


def _requests_bounded(outcome: Outcome) -> list[str]:
    """Check that `max_outstanding_requests` bounds the elements sent and not yielded."""
    limit = outcome.scenario.max_outstanding_requests
    return [
        f"{run.client.name} was sent {run.delivery.most_ahead} elements, more than {limit}"
        for run in _runs(outcome)
        if limit is not None and run.delivery.most_ahead > limit
    ]


def _memory_bounded(outcome: Outcome) -> list[str]:
    """Check that buffers hold no more than their bytes, one element, and what is needed next."""
    cluster, plan = _cluster(outcome), _plan(outcome)
    largest, scenario = plan.largest, cluster.scenario
    # The first turn of each worker is one element, of which the size is not known yet.
    limit = scenario.reader_bytes + (1 + len(cluster.workers)) * largest
    found = [
        f"{run.client.name} held {run.delivery.most_held} bytes, more than {limit}"
        for run in _runs(outcome)
        if run.delivery.most_held > limit
    ]
    readers = max(phase.count + len(phase.rivals) for phase in scenario.phases)
    limit = scenario.buffer_bytes + (CHUNK_POSITIONS * (1 + readers) + plan.ahead) * largest
    found += [
        f"{worker.name} buffered {worker.most_buffered} bytes, more than {limit}"
        for worker in cluster.workers
        if worker.most_buffered > limit
    ]
    return found


def _nothing_held(outcome: Outcome) -> list[str]:
    """Check that clients have accounted for all that has arrived once they are at the end."""
    return [
        f"{run.client.name} holds {run.client.logic.consumption.outstanding} elements at the end"
        for run in _runs(outcome)
        if run.client.state == "ended" and run.client.logic.consumption.outstanding
    ]


def _spoken_well(outcome: Outcome) -> list[str]:
    """Check the messages on data connections."""
    monitors = [worker.monitor for worker in outcome.cluster.workers]
    return [text for each in monitors if each is not None for text in each.found[:1]]
