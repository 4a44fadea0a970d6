"""A dispatcher that receives nothing from anybody: it may be cut off, and removes nobody."""

import random

import pytest

from stoker.service import messages as m
from stoker.service.dispatcher.logic import Dispatcher
from stoker.service.dispatcher.state.snapshot import dump, load
from tests.service.dispatcher.test_dispatcher_logic import C1, S1, W1, W2, Talk, only

LEASE = 10


def _talk() -> Talk:
    talk = Talk(worker_timeout_ms=LEASE * 1000)
    talk.join(W1)
    talk.join(W2)
    talk.read(C1)
    return talk


def _warnings(talk: Talk) -> list[str]:
    return [x.text for x in talk.logic.take_log() if "this machine has failed" in x.text]


def _close(talk: Talk, *peers: int) -> None:
    for peer in peers:
        talk.logic.disconnected(peer, talk.now)


def test_dispatcher_that_receives_nothing_removes_nobody():
    talk = _talk()
    assert only(talk.pass_time(100), m.Tasks) == []
    [warning] = _warnings(talk)
    assert warning.startswith("no message of any worker or client was received for 10")
    talk.say(W1, m.Heartbeat())  # the network is back, and the others may come next
    talk.pass_time(9)
    talk.say(W1, m.Heartbeat())
    assert len(talk.logic.state.workers) == 2
    talk.pass_time(2)
    assert list(talk.logic.state.workers) == [talk.worker_ids[W1]]
    assert len(talk.logic.state.clients) == 1


def test_sessions_that_broke_by_silence_change_nothing():
    talk = _talk()
    talk.pass_time(talk.config.peer_timeout_ms / 1000 - 0.25)  # messages were handled a bit late
    _close(talk, W1, W2, C1)
    talk.pass_time(100)
    assert (len(talk.logic.state.workers), len(talk.logic.state.clients)) == (2, 1)


def test_restarted_dispatcher_that_receives_nothing_removes_nobody():
    talk = _talk()
    state = load(list(dump(talk.logic.state)))
    talk.logic = Dispatcher(talk.config, random.Random(1), talk.now, state=state)
    talk.pass_time(100)
    assert (len(talk.logic.state.workers), len(talk.logic.state.clients)) == (2, 1)
    talk.join(3)
    for _ in range(11):
        talk.pass_time(1)
        talk.say(3, m.Heartbeat())
    assert list(talk.logic.state.workers) == [talk.worker_ids[3]]


def test_workers_whose_processes_ended_are_removed_after_their_lease():
    talk = _talk()
    talk.say(C1, m.ClientClose())
    talk.pass_time(1)
    _close(talk, W1, W2)
    talk.pass_time(LEASE - 2)
    assert len(talk.logic.state.workers) == 2
    talk.pass_time(2)
    assert talk.logic.state.workers == {}
    assert _warnings(talk) == []


def test_machine_with_a_trainer_and_a_worker_that_ended_is_removed():
    talk = Talk(worker_timeout_ms=LEASE * 1000)
    talk.join(W1)
    talk.read(C1)
    _close(talk, W1, C1)
    talk.pass_time(LEASE + 1)
    assert talk.logic.state.workers == {}
    talk.pass_time(60)
    assert talk.logic.state.clients == {}


def test_holder_that_comes_back_may_be_cut_off_again():
    talk = _talk()
    _close(talk, W1, W2)
    talk.join(W1, instance=b"1")
    talk.join(W2, instance=b"2")
    talk.pass_time(100)
    assert len(talk.logic.state.workers) == 2


@pytest.mark.parametrize("kept", [1, 2])
def test_message_of_a_supervisor_is_one_of_its_workers(kept: int):
    talk = _talk()
    talk.say(S1, m.SupervisorHello(1, 1))
    keys = {talk.worker_ids[peer]: talk.key(peer) for peer in (W1, W2)[:kept]}
    for _ in range(10):
        talk.pass_time(2)
        talk.say(S1, m.KeepAlive(keys))
    assert list(talk.logic.state.workers) == list(keys)
    assert _warnings(talk) == []
