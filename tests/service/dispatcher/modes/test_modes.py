"""The rules of each processing mode, on states made by records."""

import pytest

from stoker.dataset.options import Options
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, Source
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.entities.entities import WorkerEntry
from stoker.service.dispatcher.modes.dynamic.rules import Dynamic
from stoker.service.dispatcher.modes.mode import Mode
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.modes.off import Off
from stoker.service.dispatcher.modes.states import splits_of
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.listed import record_listed

VERSIONS = m.Versions("3.11", "2")
DATASET = r.DatasetAdded(
    "data",
    "digest",
    b"",
    b"",
    None,
    Options(),
    -2,
    [Source(0, "range", "", IndexSplits(10)), Source(1, "list_files", "", ListedSplits())],
    True,
    VERSIONS,
    None,
)
LISTED = {1: ["a", "b", "c"]}
COUNTS = {1: 3}
OFF = mode_of(m.JobParameters(ShardingPolicy.OFF))
DYNAMIC = mode_of(m.JobParameters(ShardingPolicy.DYNAMIC))
JOB, ITERATION, CLIENT, WORKER, TASK = "job", 1, 2, 10, 20


def _state(policy: ShardingPolicy, *, named: bool = False, workers: int = 2) -> State:
    """A job read by one client, with a task on each worker that the mode chooses."""
    state = State()
    parameters = m.JobParameters(policy)
    mode = mode_of(parameters)
    DATASET.apply(state)
    r.JobAdded(JOB, named, "data", parameters).apply(state)
    r.IterationAdded(ITERATION, JOB, (0,), 7, mode.new_state(DATASET, [])).apply(state)
    r.ClientAdded(CLIENT, ITERATION, "").apply(state)
    for k in range(workers):
        r.WorkerAdded(WORKER + k, f"host:{k}", {}, [], VERSIONS).apply(state)
    for source, values in LISTED.items():
        record_listed(state, ITERATION, source, values)
    r.SplitsKnown(ITERATION, mode.split_sources(DATASET, COUNTS, 2)).apply(state)
    for worker in _workers_to_start(mode, state):
        k = worker.added.worker_id - WORKER
        r.TaskAdded(TASK + k, ITERATION, WORKER + k, 70 + k).apply(state)
    return state


def _workers_to_start(mode: Mode, state: State) -> list[WorkerEntry]:
    iteration = state.iterations[ITERATION]
    return [x for x in state.workers.values() if mode.needs_task(iteration, DATASET, x)]


@pytest.mark.parametrize(
    ("policy", "mode"), [(ShardingPolicy.OFF, Off), (ShardingPolicy.DYNAMIC, Dynamic)]
)
def test_each_policy_has_its_mode(policy: ShardingPolicy, mode: type[Mode]):
    assert type(mode_of(m.JobParameters(policy))) is mode


@pytest.mark.parametrize("policy", ShardingPolicy)
def test_every_policy_has_a_mode(policy: ShardingPolicy):
    assert isinstance(mode_of(m.JobParameters(policy)), Mode)


def test_off_lists_and_assigns_no_splits():
    mode, state = OFF, _state(ShardingPolicy.OFF)
    assert mode.sources_to_list(DATASET) == []
    start = mode.task_start(state.tasks[TASK])
    assert start == m.TaskStart(TASK, ITERATION, "data", 70, (0,), job="job")


def test_dynamic_lists_files_and_assigns_all_sources():
    mode, state = DYNAMIC, _state(ShardingPolicy.DYNAMIC)
    assert mode.sources_to_list(DATASET) == [1]
    sources = [m.SplitSource(0, 10, 10), m.SplitSource(1, 3)]
    assert mode.task_start(state.tasks[TASK]).mode == m.SplitTask(sources=sources)


def test_each_worker_runs_one_task_if_its_versions_match():
    state = _state(ShardingPolicy.OFF)
    r.WorkerAdded(12, "host:2", {}, [], m.Versions("3.99", "2")).apply(state)
    r.WorkerAdded(14, "host:4", {}, [], VERSIONS).apply(state)
    new = _workers_to_start(OFF, state)
    assert [worker.added.worker_id for worker in new] == [14]


@pytest.mark.parametrize("policy", [ShardingPolicy.OFF, ShardingPolicy.DYNAMIC])
def test_an_iteration_is_finished_once_delivered(policy: ShardingPolicy):
    state = _state(policy)
    iteration = state.iterations[ITERATION]
    r.TaskEnded(TASK).apply(state)
    assert not iteration.computed
    r.WorkerLost(WORKER + 1, "it died").apply(state)
    assert iteration.computed
    assert not iteration.finished
    r.TaskDelivered(TASK).apply(state)
    assert iteration.finished


@pytest.mark.parametrize(
    ("policy", "accepted"), [(ShardingPolicy.OFF, True), (ShardingPolicy.DYNAMIC, False)]
)
def test_only_off_starts_tasks_while_computed_ones_are_read(policy: ShardingPolicy, accepted: bool):
    state = _state(policy, workers=1)
    mode, iteration = mode_of(m.JobParameters(policy)), state.iterations[ITERATION]
    r.TaskEnded(TASK).apply(state)
    assert iteration.computed
    assert mode.accepts_tasks(iteration) is accepted
    r.TaskDelivered(TASK).apply(state)
    assert not mode.accepts_tasks(iteration)


def test_off_starts_anew_after_the_loss_of_a_computed_task():
    state = _state(ShardingPolicy.OFF, workers=1)
    iteration = state.iterations[ITERATION]
    r.TaskEnded(TASK).apply(state)
    assert iteration.computed
    r.WorkerLost(WORKER, "it died").apply(state)
    assert not iteration.computed
    assert not iteration.finished


@pytest.mark.parametrize("record", [r.TaskEndReceived(TASK), r.TaskDelivered(TASK)])
def test_off_ends_after_the_loss_of_a_task_that_was_read(record: Record):
    state = _state(ShardingPolicy.OFF, workers=1)
    r.TaskEnded(TASK).apply(state)
    record.apply(state)
    r.WorkerLost(WORKER, "it died").apply(state)
    assert state.iterations[ITERATION].finished


def test_dynamic_ends_after_the_loss_of_a_computed_task():
    state = _state(ShardingPolicy.DYNAMIC, workers=1)
    r.TaskEnded(TASK).apply(state)
    r.WorkerLost(WORKER, "it died").apply(state)
    assert state.iterations[ITERATION].finished


def test_a_task_that_computes_no_more_is_no_end_by_itself():
    """A worker that drains ends its task before the data ends."""
    state = _state(ShardingPolicy.OFF, workers=1)
    r.TaskDelivered(TASK).apply(state)
    assert not state.iterations[ITERATION].computed


def test_dropped_tasks_leave_their_splits_to_the_next_client():
    state = _state(ShardingPolicy.DYNAMIC, workers=1)
    r.SplitsBegun(TASK, 0, 0, [(0, 1)]).apply(state)
    r.TaskDropped(TASK, "nobody has read it").apply(state)
    iteration = state.iterations[ITERATION]
    assert state.tasks[TASK].splits_lost == 1
    assert len(splits_of(iteration.mode_state).trackers[0, 0].begun) == 1
    new = _workers_to_start(DYNAMIC, state)
    assert [worker.added.worker_id for worker in new] == [WORKER]


@pytest.mark.parametrize("policy", [ShardingPolicy.OFF, ShardingPolicy.DYNAMIC])
def test_an_iteration_whose_tasks_are_all_lost_goes_on(policy: ShardingPolicy):
    state = _state(policy, workers=1)
    r.WorkerLost(WORKER, "it died").apply(state)
    assert not state.iterations[ITERATION].finished


def test_a_lost_dynamic_task_returns_splits_it_had_not_begun():
    state = _state(ShardingPolicy.DYNAMIC)
    r.SplitsBegun(TASK, 0, 0, [(0, 1)]).apply(state)
    r.WorkerLost(WORKER, "it died").apply(state)
    iteration = state.iterations[ITERATION]
    assert len(splits_of(iteration.mode_state).trackers[0, 0].begun) == 1
    loss = mode_of(iteration.parameters).loss(state.tasks[TASK])
    assert loss == m.TaskLost(TASK, "host:0", "it died", splits_begun=1)


@pytest.mark.parametrize(
    ("policy", "named", "collect_named", "collected"),
    [
        (ShardingPolicy.OFF, True, False, True),
        (ShardingPolicy.DYNAMIC, False, False, True),
        (ShardingPolicy.DYNAMIC, True, False, False),
        (ShardingPolicy.DYNAMIC, True, True, True),
    ],
)
def test_named_dynamic_jobs_are_kept_unless_configured(
    policy: ShardingPolicy, named: bool, collect_named: bool, collected: bool
):
    job = _state(policy, named=named).jobs[JOB]
    config = DispatcherConfig(gc_dynamic_sharding_jobs=collect_named)
    assert mode_of(job.added.parameters).is_collected(job, config) is collected
