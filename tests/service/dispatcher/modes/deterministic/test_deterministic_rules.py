"""DETERMINISTIC by messages: tasks of an epoch whose positions clients ask for."""

import re
from typing import Any

import msgspec
import pytest

from stoker.dataset.drawn_seeds import DrawnSeeds
from stoker.dataset.options import Options
from stoker.dataset.positions.counted import Counted, NotCounted
from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.dataset.tree.structure import structure_of
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.dispatcher.state.snapshot import dump, load
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.dispatcher.sessions.test_reattachment import KEY, Journaled
from tests.service.dispatcher.test_dispatcher_logic import C1, C2, S1, TREE, W1, W2, Talk, only

DRAWS = m.Draws(7, salts=[0, 3])
PARAMETERS = m.JobParameters(ShardingPolicy.DETERMINISTIC)
COUNTED = Counted(100)
ORIGINAL, COPY = m.CopyTime(float("inf")), m.CopyTime(3.0)


def _registration(positions: Counted | NotCounted | None = COUNTED) -> m.RegisterDataset:
    spec = spec_to_wire(UnknownSpec())
    structure = structure_of(TREE)
    return m.RegisterDataset(
        "counted", TREE, spec, Options(), structure=structure, positions=positions
    )


def _hello(**fields: Any) -> m.ClientHello:
    known: dict[str, Any] = {
        "epoch": (0,),
        "draws": DRAWS,
        "registration": _registration(),
        "process": "one",
    }
    return m.ClientHello(1, 1, "", "job", PARAMETERS, **known | fields)


def _read(talk: Talk, peer: int, **fields: Any) -> list[tuple[int, object]]:
    return talk.say(peer, _hello(**fields))


def _welcome(said: list[tuple[int, object]]) -> m.ClientWelcome:
    [(_, welcome)] = only(said, m.ClientWelcome)
    return welcome


def _refusals(said: list[tuple[int, object]]) -> list[tuple[int, ErrorRecord]]:
    return [(peer, message.error) for peer, message in only(said, m.Refused)]


def _talk(workers: int = 2, **config: Any) -> Talk:
    talk = Talk(**config)
    for peer in (W1, W2)[:workers]:
        talk.join(peer)
    return talk


def _stopped(said: list[tuple[int, object]]) -> set[int]:
    return {peer for peer, _ in only(said, m.TaskStop)}


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────
def test_every_worker_runs_the_epoch_with_the_draws_of_the_client():
    talk = _talk()
    said = _read(talk, C1, draws=m.Draws(7, seed_given=True, salts=[5], first_number=2))
    starts = [message for _, message in only(said, m.TaskStart)]
    mode = m.PositionTask(length=100, seed_given=True, first_number=2)
    assert [(x.seed, x.salts, x.mode, x.epoch) for x in starts] == [(7, [5], mode, (0,))] * 2
    assert _welcome(said).length == 100
    added = [task for _, tasks in only(said, m.Tasks) for task in tasks.added]
    assert {task.task_id for task in added} == {start.task_id for start in starts}


def test_a_job_with_seeds_of_its_own_uses_those_of_the_client():
    talk = _talk(1)
    seeded = msgspec.structs.replace(_registration(), seeds=DrawnSeeds(1, [9]))
    [(_, start)] = only(_read(talk, C1, registration=seeded), m.TaskStart)
    assert (start.seed, start.salts) == (7, [0, 3])


def test_the_seed_is_that_of_the_client_after_a_death_too():
    talk = _talk()
    _read(talk, C1)
    calls = {talk.task(W1): [CallRange(1, 3, 4)]}
    talk.say(S1, m.SupervisorHello(1, 1))
    talk.say(S1, m.WorkerDied(talk.worker_ids[W1], "SIGKILL", talk.key(W1), calls))
    talk.join(W1)
    [iteration] = talk.logic.state.iterations.values()
    assert iteration.poison.deaths
    assert {task.seed for task in iteration.tasks.values()} == {7}


def test_no_task_ever_counts_as_computed():
    talk = _talk(1)
    _read(talk, C1)
    said = talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True, delivered=True))
    said += talk.say(W1, m.WorkerLeave())
    assert not any(tasks.computed for _, tasks in only(said, m.Tasks))
    assert only(talk.join(W2), m.TaskStart)


@pytest.mark.parametrize("undelivered", [0, 5])
def test_a_lost_task_is_no_loss(undelivered: int):
    talk = _talk()
    _read(talk, C1)
    task_id = talk.task(W1)
    said = talk.say(W1, m.WorkerLeave({task_id: undelivered}))
    [(_, tasks)] = only(said, m.Tasks)
    assert tasks.lost == [m.TaskLost(task_id, "host:1", m.STOPPED, elements=0)]
    reply = talk.call(m.GetStatus())
    assert isinstance(reply, m.StatusReply)
    [epoch] = reply.status.jobs[0].epochs
    assert (epoch.tasks_lost, epoch.splits_lost, epoch.elements_lost) == (0, 0, 0)


def test_a_worker_that_joins_gets_a_task():
    talk = _talk(1)
    _read(talk, C1)
    said = talk.join(W2)
    [(_, start)] = only(said, m.TaskStart)
    assert start.seed == 7
    assert [x.task_id for _, tasks in only(said, m.Tasks) for x in tasks.added] == [start.task_id]


# ── ends ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("named", [False, True])
def test_tasks_stop_with_the_last_client_and_start_with_the_next(named: bool):
    talk = _talk()
    _read(talk, C1, named=named, consumer_index=0)
    _read(talk, C2, named=named, consumer_index=1)
    assert _stopped(talk.say(C1, m.ClientClose())) == set()
    assert _stopped(talk.say(C2, m.ClientClose())) == {W1, W2}
    said = _read(talk, 13, named=named)
    assert {peer for peer, _ in only(said, m.TaskStart)} == {W1, W2}
    assert _welcome(said).length == 100
    [(_, tasks)] = only(said, m.Tasks)
    assert len(tasks.added) == 2
    assert not tasks.lost


def test_tasks_stop_when_the_last_client_loses_its_lease():
    talk = _talk(client_timeout_ms=10_000)
    _read(talk, C1)
    said = []
    for _ in range(12):
        for peer in (W1, W2):
            talk.say(peer, m.Heartbeat())
        said += talk.pass_time(1)
    assert _stopped(said) == {W1, W2}
    assert not only(said, m.Refused)
    assert (C1, "end") in said


def test_an_epoch_that_is_read_again_keeps_its_poisoned_calls():
    talk = _talk()
    _read(talk, C1)
    iteration = next(iter(talk.logic.state.iterations.values()))
    iteration.poison.seeds = [7]
    talk.say(C1, m.ClientClose())
    _read(talk, C2)
    [again] = talk.logic.state.iterations.values()
    assert again is not iteration
    assert again.poison.seeds == [7]


def test_a_read_of_later_epochs_leaves_nothing_behind():
    talk = _talk(job_gc_timeout_ms=1000, job_gc_check_interval_ms=500)
    for epoch in range(3):
        _read(talk, C1 + epoch, epoch=(epoch,))
        talk.say(C1 + epoch, m.ClientClose())
    talk.pass_time(3)
    state = talk.logic.state
    assert not any((state.jobs, state.iterations, state.tasks, state.clients))


# ── clients ───────────────────────────────────────────────────────────────────────────────────────
def test_a_client_in_another_process_replaces_the_older_one():
    talk = _talk()
    _read(talk, C1)
    said = _read(talk, C2, process="two")
    [(peer, error)] = _refusals(said)
    assert peer == C1
    assert error.code == "UnavailableError"
    assert "`num_consumers`" in error.message
    assert "IterableDataset" not in error.message
    assert not _stopped(said)
    assert len(talk.logic.state.clients) == 1


def test_a_copy_in_a_loader_is_told_how_to_share():
    talk = _talk()
    _read(talk, C1, copied=COPY)
    [(_, error)] = _refusals(_read(talk, C2, process="two", copied=COPY))
    assert "stoker.torch.IterableDataset" in error.message


def test_a_replaced_client_that_was_away_gets_the_error_when_it_connects():
    talk = _talk()
    welcome = _welcome(_read(talk, C1, key=KEY))
    talk.logic.disconnected(C1, talk.now)
    assert _refusals(_read(talk, C2, process="two")) == []
    known = {"client_id": welcome.client_id, "journal_id": welcome.journal_id}
    [(peer, error)] = _refusals(_read(talk, 13, key=KEY, **known))
    assert (peer, "`num_consumers`" in error.message) == (13, True)
    assert len(talk.logic.state.clients) == 1


def test_iterators_of_one_process_may_read_one_epoch():
    talk = _talk()
    _read(talk, C1)
    assert _refusals(_read(talk, C2)) == []
    assert len(talk.logic.state.clients) == 2


def test_consumers_read_together_and_two_may_have_one_index():
    talk = _talk()
    for peer, index in enumerate([0, 1, 1, 2], 11):
        assert _refusals(_read(talk, peer, process=str(peer), consumer_index=index)) == []
    assert len(talk.logic.state.clients) == 4
    assert len(talk.logic.state.iterations) == 1


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"copied": ORIGINAL}, True),
        ({"copied": COPY}, True),
        ({"copied": None}, False),
        ({"copied": ORIGINAL, "consumer_index": 1}, False),
        ({"copied": ORIGINAL, "epoch": (1,)}, False),
    ],
)
@pytest.mark.parametrize("closes", [False, True])
def test_beginning_an_epoch_again_is_warned_of(fields: dict[str, Any], warned: bool, closes: bool):
    talk = _talk()
    assert _welcome(_read(talk, C1, copied=ORIGINAL)).warning == ""
    if closes:
        talk.say(C1, m.ClientClose())
    warning = _welcome(_read(talk, C2, process="two", **fields)).warning
    assert ("iterator(state=...)" in warning) is warned


# ── draws ─────────────────────────────────────────────────────────────────────────────────────────
OTHER = m.Draws(8)


def test_other_draws_without_a_client_begin_another_iteration():
    talk = _talk()
    _read(talk, C1)
    talk.say(C1, m.ClientClose())
    said = _read(talk, C2, draws=OTHER)
    assert {start.seed for _, start in only(said, m.TaskStart)} == {8}


def test_other_draws_in_another_process_replace_the_older_client():
    talk = _talk()
    _read(talk, C1)
    said = _read(talk, C2, draws=OTHER, process="two")
    assert [peer for peer, _ in _refusals(said)] == [C1]
    assert _stopped(said) == {W1, W2}
    assert {start.seed for _, start in only(said, m.TaskStart)} == {8}
    assert len(talk.logic.state.iterations) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [({"consumer_index": 0}, {"consumer_index": 1, "process": "two"}), ({}, {})],
)
def test_other_draws_beside_a_client_that_reads_on_are_refused(
    first: dict[str, Any], second: dict[str, Any]
):
    talk = _talk()
    _read(talk, C1, **first)
    commits = talk.logic.commits
    [(peer, error)] = _refusals(_read(talk, C2, draws=OTHER, **second))
    assert peer == C2
    assert "another seed" in error.message
    assert talk.logic.commits == commits


# ── admission ─────────────────────────────────────────────────────────────────────────────────────
def test_a_dispatcher_that_forgot_everything_admits_the_client_again():
    talk = _talk()
    known = {"client_id": 77, "journal_id": "of another dispatcher", "key": KEY}
    first = _hello(registration=msgspec.structs.replace(_registration(), tree=b""), **known)
    assert [type(x) for _, x in talk.say(C1, first)] == [m.DatasetUnknown]
    assert talk.say(C1, m.Heartbeat()) == []  # it does so since its first welcome
    welcome = _welcome(_read(talk, C1, **known))
    assert welcome.client_id != 77
    assert (welcome.key, welcome.compression) == (KEY, "AUTO")


def test_a_client_whose_lease_ended_is_admitted_again():
    talk = _talk(client_timeout_ms=10_000)
    welcome = _welcome(_read(talk, C1, key=KEY))
    known = {"client_id": welcome.client_id, "journal_id": welcome.journal_id, "key": KEY}
    for _ in range(12):
        talk.say(W1, m.Heartbeat())
        talk.say(W2, m.Heartbeat())
        talk.pass_time(1)
    said = _read(talk, C2, **known)
    again = _welcome(said)
    assert again.client_id != welcome.client_id
    assert {peer for peer, _ in only(said, m.TaskStart)} == {W1, W2}
    # The answer may be lost: then the old id is known by its key.
    assert _welcome(_read(talk, 13, **known)).client_id == again.client_id


def test_other_modes_do_not_admit_an_unknown_client():
    talk = _talk()
    said = talk.read(C1, client_id=77, journal_id=talk.logic.state.history.journal_id)
    [(_, error)] = _refusals(said)
    assert error.code == "NotFoundError"


def test_a_client_resumes_after_a_restart_with_a_journal():
    talk = Journaled()
    talk.join(W1)
    welcome = _welcome(_read(talk, C1, key=KEY))
    task_id = talk.task(W1)
    parts = list(dump(talk.logic.state))
    assert list(dump(load(parts))) == parts
    talk.restart()
    talk.again(W1, tasks=[task_id])
    known = {"client_id": welcome.client_id, "journal_id": welcome.journal_id, "key": KEY}
    said = _read(talk, C1, **known)
    assert _welcome(said).client_id == welcome.client_id
    assert _welcome(said).length == 100
    [(_, tasks)] = only(said, m.Tasks)
    assert [task.task_id for task in tasks.added] == [task_id]


# ── bad requests ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"draws": None}, "must send its draws"),
        ({"consumer_index": -1}, "`consumer_index` of 0 or more"),
        (
            {"parameters": m.JobParameters(ShardingPolicy.DETERMINISTIC, num_consumers=2)},
            "`num_consumers`|`consumer_index`",
        ),
        (
            {
                "parameters": m.JobParameters(
                    ShardingPolicy.DETERMINISTIC, use_cross_trainer_cache=True
                )
            },
            "share no cache",
        ),
        ({"registration": _registration(None)}, "registered by an older stoker"),
        (
            {"registration": _registration(NotCounted("filter", "a.py:3", "use X"))},
            r"`filter` \(a.py:3\) has no known positions.*use X",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_and_leaves_nothing(fields: dict[str, Any], message: str):
    talk = _talk()
    commits = talk.logic.commits
    said = talk.say(C1, msgspec.structs.replace(_hello(), **fields))
    [(_, error)] = _refusals(said)
    assert re.search(message, error.message)
    assert talk.logic.commits == commits


def test_a_job_of_another_mode_is_not_shared():
    talk = _talk()
    _read(talk, C1)
    other = msgspec.structs.replace(_hello(), parameters=m.JobParameters(ShardingPolicy.OFF))
    [(_, error)] = _refusals(talk.say(C2, other))
    assert "processing mode" in error.message


def test_the_positions_of_a_registered_dataset_are_known_to_readers_of_its_id():
    talk = _talk()
    talk.call(_registration())
    reply = talk.call(m.GetDataset("counted", with_tree=False))
    assert isinstance(reply, m.DatasetReply)
    assert (reply.positions, reply.tree) == (Counted(100), b"")
    assert reply.structure == talk.logic.state.datasets["counted"].structure
