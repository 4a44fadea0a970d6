"""The lines of the dispatcher's log, by values."""

import logging
import random
from typing import Any

import msgspec
import pytest

from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.dispatcher.logic import Dispatcher
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.dispatcher.test_dispatcher_logic import C1, C2, VERSIONS, W1, W2, Talk

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
EPOCH = {"job": "job", "epoch": "0"}


def lines(talk: Talk, least: int = INFO) -> list[tuple[int, str, dict[str, Any]]]:
    taken = talk.logic.take_log()
    return [(line.level, line.text, line.fields) for line in taken if line.level >= least]


def client_of(talk: Talk) -> int:
    [client_id] = talk.logic.state.clients
    return client_id


def reading(mode: ShardingPolicy = ShardingPolicy.DYNAMIC) -> Talk:
    """Return a dispatcher with a worker and a client that reads; its lines were taken."""
    talk = Talk()
    talk.join(W1)
    talk.read(C1, mode)
    talk.logic.take_log()
    return talk


def test_worker_joins_drains_and_leaves():
    talk = Talk()
    talk.join(W1, tags=["COLOCATED"])
    talk.say(W1, m.WorkerDraining())
    talk.say(W1, m.WorkerLeave())
    place = {"worker": "host:1"}
    assert lines(talk) == [
        (INFO, "a worker joined with tags COLOCATED; there are 1", place),
        (INFO, "a worker is draining", place),
        (INFO, "worker host:1 left: it was stopped", place),
    ]


def test_lost_worker_is_a_warning_with_the_reason_and_its_tasks():
    talk = reading(ShardingPolicy.OFF)
    talk.pass_time(9.0)
    talk.say(C1, m.Heartbeat())
    talk.pass_time(2.0)
    assert (
        WARNING,
        "worker host:1 was lost: no heartbeat for 10 s; 1 task ends",
        {"worker": "host:1"},
    ) in lines(talk)


def test_job_and_epoch_begin_and_end():
    talk = Talk()
    talk.join(W1)
    talk.logic.take_log()
    talk.read(C1, ShardingPolicy.OFF)
    client = {**EPOCH, "client": client_of(talk)}
    assert lines(talk) == [
        (INFO, "a job was created: policy OFF, dataset data", {"job": "job"}),
        (INFO, "an epoch begins", EPOCH),
        (INFO, "a client joined", client),
    ]
    task = talk.task(W1)
    talk.say(W1, m.TaskProgress(task, exhausted=True))
    assert lines(talk) == []
    talk.say(W1, m.TaskProgress(task, exhausted=True, delivered=True))
    assert lines(talk) == [(INFO, "the epoch ended after 1 task", EPOCH)]
    talk.say(C1, m.ClientClose())
    assert lines(talk) == [(INFO, "a client left", client)]


def test_epoch_that_nobody_reads_is_stopped():
    talk = Talk()
    talk.join(W1)
    talk.read(C1, named=False)
    talk.logic.take_log()
    talk.say(C1, m.ClientClose())
    assert (INFO, "the epoch was stopped: no client reads it", EPOCH) in lines(talk)


@pytest.mark.parametrize(
    ("undelivered", "text"),
    [
        (3, "3 elements are lost"),
        (None, "elements of 2 splits may be lost"),
    ],
)
def test_losses_are_warnings(undelivered, text):
    talk = reading()
    task = talk.task(W1)
    talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0, 1]))
    talk.say(W1, m.WorkerLeave({} if undelivered is None else {task: undelivered}))
    text = f"job 'job': {text} with worker host:1"
    assert lines(talk, WARNING) == [(WARNING, text, {**EPOCH, "worker": "host:1", "task": task})]


def test_losses_of_an_epoch_without_clients_are_no_warning():
    talk = reading()
    task = talk.task(W1)
    talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0, 1]))
    talk.say(C1, m.ClientClose())
    talk.say(W1, m.WorkerLeave({task: 3}))
    assert lines(talk, WARNING) == []


def test_elements_dropped_with_a_client_are_a_warning():
    talk = reading()
    task = talk.task(W1)
    talk.say(W1, m.TaskProgress(task, dropped=7))
    text = "job 'job': 7 elements are lost, sent to clients that died"
    assert lines(talk, WARNING) == [(WARNING, text, {**EPOCH, "worker": "host:1", "task": task})]


def test_failed_epoch_is_an_error():
    talk = reading()
    iteration = next(iter(talk.logic.state.iterations.values()))
    talk.logic._iterations._fail(iteration, ErrorRecord("NotFoundError", "no file"))
    assert lines(talk) == [(ERROR, "the epoch failed: no file", EPOCH)]


def test_session_that_opens_again_has_the_reason():
    talk = reading()
    worker_id, client_id = talk.worker_ids[W1], client_of(talk)
    state = talk.logic.state
    journal = state.history.journal_id
    hello = m.WorkerHello(1, 1, "host:1", {}, VERSIONS, worker_id=worker_id, journal_id=journal)
    reason = "nothing was received for 10 s"
    talk.say(W2, msgspec.structs.replace(hello, key=talk.key(W1), reason=reason))
    talk.read(
        C2,
        client_id=client_id,
        journal_id=journal,
        key=state.clients[client_id].key,
        reason="Connection reset by peer",
    )
    assert lines(talk) == [
        (
            INFO,
            f"a worker connected again; its connection had failed: {reason}",
            {"worker": "host:1"},
        ),
        (
            INFO,
            "a client connected again; its connection had failed: Connection reset by peer",
            {**EPOCH, "client": client_id},
        ),
    ]


def test_splits_and_tasks_cost_no_line():
    talk = reading()
    task = talk.task(W1)
    talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0, 1], want=2))
    assert talk.logic.take_log() == []


def test_long_text_is_cut_in_the_events_but_not_in_the_log():
    talk = Talk()
    talk.logic._ledger.events.add(WARNING, "x" * 10**6)
    [event] = talk.logic._ledger.events.recent
    assert event.line.text == "x" * 1000 + "..."
    assert [len(text) for _, text, _ in lines(talk)] == [10**6]


def test_event_of_the_start_has_its_time():
    talk = Talk()
    assert Dispatcher(talk.config, random.Random(0), 5000.0)._ledger.events.now == 5000.0
