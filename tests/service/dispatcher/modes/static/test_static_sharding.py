"""The rules of static sharding, on states made by records."""

import msgspec
import pytest

from stoker.dataset.options import Options
from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, ShardBy, Source, Unsplittable
from stoker.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from stoker.service import messages as m
from stoker.service.dispatcher.iterations.task_updates import task_update
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.modes.state import ModeState
from stoker.service.dispatcher.modes.static.rules import state_of
from stoker.service.dispatcher.modes.static.state import ShardState
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.snapshot import dump, load
from stoker.service.dispatcher.state.state import State
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.listed import record_listed

VERSIONS = m.Versions("3.11", "2")
FILES = Source(1, "list_files", "", ListedSplits())
NAMES = Source(2, "from_tensor_slices", "", IndexSplits(4))
RANGE = Source(3, "range", "train.py:7", Unsplittable("it does not read files"))
PLACES = ["a", "b", "c"]
FILE, DATA = ShardingPolicy.FILE, ShardingPolicy.DATA
FILES_MODE = mode_of(m.JobParameters(FILE))
FILE_OR_DATA, HINT = ShardingPolicy.FILE_OR_DATA, ShardingPolicy.HINT
ITERATION, CLIENT, LOCAL_CLIENT = 1, 2, 3
ADDRESSES = {"local": "process/1"}


def _dataset(*sources: Source) -> r.DatasetAdded:
    return r.DatasetAdded(
        "data", "digest", b"", b"", None, Options(), -2, [], False, VERSIONS, None, [], False,
        list(sources),
    )  # fmt: skip


def _state(policy: ShardingPolicy = DATA, target: str = "AUTO", workers: str = "abc") -> State:
    """An epoch of three shards with a task on each of the workers."""
    state = State()
    state.places.addresses = PLACES
    _dataset(FILES).apply(state)
    r.JobAdded("job", True, "data", m.JobParameters(policy, target)).apply(state)
    mode = mode_of(m.JobParameters(policy))
    shards = mode.new_state(_dataset(FILES), PLACES)
    r.IterationAdded(ITERATION, "job", (0,), 7, shards).apply(state)
    r.ClientAdded(CLIENT, ITERATION, "").apply(state)
    r.ClientAdded(LOCAL_CLIENT, ITERATION, "process", key=b"k").apply(state)
    r.SplitsKnown(ITERATION, []).apply(state)
    for name in workers:
        _add(state, name)
    return state


def _add(state: State, name: str, worker_id: int = 0, tags: tuple[str, ...] = ()) -> int:
    """Register the worker of a place, and start its task if it needs one; return its id."""
    place = PLACES.index(name)
    worker_id = worker_id or 10 + place
    local = ADDRESSES if name == "a" else {}
    added = r.WorkerAdded(
        worker_id, f"{name}:{worker_id}", local, list(tags), VERSIONS, place=place
    )
    added.apply(state)
    iteration, worker = state.iterations[ITERATION], state.workers[worker_id]
    mode = mode_of(iteration.parameters)
    if mode.needs_task(iteration, _dataset(), worker):
        seed = mode.common_seed(iteration)
        assert seed is not None
        r.TaskAdded(worker_id + 10, ITERATION, worker_id, seed, readers=[CLIENT]).apply(state)
    return worker_id


def _end(state: State, *tasks: int) -> None:
    for task_id in tasks:
        r.TaskEnded(task_id).apply(state)
        r.TaskDelivered(task_id).apply(state)


def _ended_for(state: State, client_id: int = CLIENT) -> bool:
    client = state.clients[client_id]
    return mode_of(client.iteration.parameters).is_computed_for(client)


def _absent(state: State, client_id: int = CLIENT) -> str:
    return task_update(state.clients[client_id], []).absent


# ── what is divided ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("policy", "sources", "by"),
    [
        (DATA, [FILES], ShardBy.ELEMENTS),
        (HINT, [RANGE], ShardBy.HINT),
        (FILE, [FILES, NAMES], ShardBy.FILES),
        (FILE_OR_DATA, [FILES, NAMES], ShardBy.FILES),
        (FILE_OR_DATA, [FILES, RANGE], ShardBy.ELEMENTS),
        (FILE_OR_DATA, [], ShardBy.ELEMENTS),
    ],
)
def test_the_policy_and_the_sources_decide_what_is_divided(policy, sources, by):
    mode = mode_of(m.JobParameters(policy))
    state = mode.new_state(_dataset(*sources), PLACES)
    assert isinstance(state, ShardState)
    assert (state.shards, state.by) == (3, by)


def test_a_source_without_files_is_named():
    mode = mode_of(m.JobParameters(FILE))
    with pytest.raises(NotFoundError, match=r"unshardable source dataset: `range` \(train.py:7\)"):
        mode.new_state(_dataset(FILES, RANGE), PLACES)


@pytest.mark.parametrize("policy", [DATA, FILE_OR_DATA, HINT])
def test_elements_of_another_service_are_not_divided(policy):
    source = Source(0, "distribute", "train.py:3", Unsplittable("it reads from another service"))
    with pytest.raises(UnimplementedError, match=r"`distribute` \(train.py:3\) cannot be read"):
        mode_of(m.JobParameters(policy)).new_state(_dataset(source), PLACES)


@pytest.mark.parametrize("policy", [FILE, DATA, FILE_OR_DATA, HINT])
def test_without_configured_workers_a_policy_is_refused(policy):
    with pytest.raises(NotFoundError, match=r"Worker .* is not in the workers list"):
        mode_of(m.JobParameters(policy)).new_state(_dataset(FILES), [])


def test_too_few_names_or_listed_files_are_refused():
    mode = mode_of(m.JobParameters(FILE))
    with pytest.raises(InvalidArgumentError, match="only has 4 file"):
        mode.new_state(_dataset(NAMES), ["a"] * 5)
    state = _state(FILE, workers="")
    mode.check_listed(state.iterations[ITERATION])
    record_listed(state, ITERATION, 1, ["x", "y"])
    with pytest.raises(InvalidArgumentError, match="required 3 shards/workers"):
        mode.check_listed(state.iterations[ITERATION])


def test_files_are_listed_only_to_divide_them():
    assert mode_of(m.JobParameters(FILE)).sources_to_list(_dataset(FILES, NAMES)) == [1]
    assert mode_of(m.JobParameters(FILE_OR_DATA)).sources_to_list(_dataset(FILES)) == [1]
    assert mode_of(m.JobParameters(FILE_OR_DATA)).sources_to_list(_dataset(FILES, RANGE)) == []
    assert mode_of(m.JobParameters(DATA)).sources_to_list(_dataset(FILES)) == []


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────
def test_tasks_have_their_shards_and_one_seed():
    state = _state()
    starts = [mode_of(m.JobParameters(DATA)).task_start(task) for task in state.tasks.values()]
    assert [start.mode for start in starts] == [
        m.ShardTask(by=ShardBy.ELEMENTS, count=3, index=k) for k in range(3)
    ]
    assert {start.seed for start in starts} == {7}


def test_a_worker_of_a_shard_that_was_read_gets_no_task():
    state = _state(workers="ab")
    _end(state, 20)
    r.WorkerLost(10, "it died").apply(state)
    _add(state, "a", 30)
    assert 40 not in state.tasks


def test_a_lost_shard_starts_again():
    state = _state()
    r.WorkerLost(11, "it died").apply(state)
    loss = mode_of(m.JobParameters(DATA)).loss(state.tasks[21])
    assert loss.read_again == "shard 1 of 3"
    _add(state, "b", 31)
    assert state.tasks[41].worker.place == 1


def test_a_drained_task_leaves_its_shard_unread():
    state = _state(workers="a")
    r.TaskDelivered(20).apply(state)  # without `TaskEnded`: it computed no more
    assert state_of(state.iterations[ITERATION]).missing == {0, 1, 2}


def test_calls_that_ended_a_worker_are_searched_by_the_next_one():
    state = _state()
    mode, calls = mode_of(m.JobParameters(DATA)), [CallRange(5, 3, 4)]
    assert mode.repeats_elements
    for worker_id, task_id in ((10, 20), (50, 60)):
        r.TaskDied(task_id, calls, 0, "it crashed").apply(state)
        r.WorkerLost(worker_id, "it crashed").apply(state)
        _add(state, "a", worker_id + 40)
    assert mode.task_start(state.tasks[100]).suspects == calls


# ── the end ──────────────────────────────────────────────────────────────────────────────────────
def test_an_epoch_ends_when_every_shard_was_read():
    state = _state()
    _end(state, 20, 21)
    assert not state.iterations[ITERATION].computed
    _end(state, 22)
    assert state.iterations[ITERATION].finished
    assert _ended_for(state)


def test_clients_wait_for_absent_workers_and_name_them():
    state = _state(workers="b")
    _end(state, 21)
    assert not _ended_for(state)
    assert _absent(state) == (
        "the worker of shard 0 of 3 at a, the worker of shard 2 of 3 at c, "
        "which have not registered"
    )
    _add(state, "a")
    _add(state, "c")
    assert _absent(state) == ""
    _end(state, 20, 22)
    assert _ended_for(state)


def test_few_of_many_absent_workers_are_named():
    state = _state(workers="")
    iteration = state.iterations[ITERATION]
    state_of(iteration).missing.update(range(3, 10))
    assert _absent(state).endswith("2 of 3 at c and 7 more, which have not registered")


def test_local_clients_wait_for_their_own_shards_only():
    state = _state(target="LOCAL")
    assert not _ended_for(state, LOCAL_CLIENT)
    _end(state, 20)
    assert _ended_for(state, LOCAL_CLIENT)
    r.WorkerLost(12, "it died").apply(state)
    assert _ended_for(state, LOCAL_CLIENT)
    assert _absent(state, LOCAL_CLIENT) == ""


def test_nobody_waits_for_a_colocated_worker_of_others():
    state = _state(workers="ab")
    _add(state, "c", tags=("COLOCATED",))
    _end(state, 20, 21)
    assert _ended_for(state)


def test_a_snapshot_keeps_shards_and_places():
    state = _state(workers="ab")
    _end(state, 20)
    r.WorkerLost(10, "it died").apply(state)
    again = load(list(dump(state)))
    iteration = again.iterations[ITERATION]
    assert state_of(iteration).missing == {1, 2}
    assert list(again.places.workers) == [1]
    assert (state_of(iteration).shards, state_of(iteration).by) == (3, ShardBy.ELEMENTS)
    _add(again, "c")
    assert again.tasks[22].worker.place == 2


# ── files ────────────────────────────────────────────────────────────────────────────────────────
def test_pages_of_files_divide_the_list():
    state = _state(FILE)
    files = [str(k) for k in range(5000)]
    record_listed(state, ITERATION, 1, files)
    for task_id in (20, 21, 22):
        found: list[str] = []
        start, end = 0, False
        while not end:
            page = FILES_MODE.shard_page(state.tasks[task_id], m.ShardRequest(task_id, 1, start))
            msgspec.msgpack.encode(page)
            found, start, end = found + page.values, start + len(page.values), page.end
        assert found == files[task_id - 20 :: 3]


def test_a_request_for_an_impossible_page_is_refused():
    with pytest.raises(InvalidArgumentError, match="task 20 asks for files"):
        FILES_MODE.shard_page(_state().tasks[20], m.ShardRequest(20, 1, -1))


def test_an_iteration_has_at_least_one_shard():
    mode = mode_of(m.JobParameters(DATA))
    assert mode.fits(ShardState(shards=1, by=ShardBy.ELEMENTS))
    assert not mode.fits(ShardState(shards=0, by=ShardBy.ELEMENTS))
    assert not mode.fits(ModeState())
