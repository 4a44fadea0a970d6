"""Workers, supervisors and clients that find a dispatcher rebuilt from its journal."""

import random
from typing import Any

import msgspec
import pytest

from stoker.service import messages as m
from stoker.service.dispatcher.logic import RETURN_SECONDS, Dispatcher, Send
from stoker.service.dispatcher.state.snapshot import rebuild
from stoker.service.keys import KEY_BYTES
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.dispatcher.test_dispatcher_logic import C1, C2, S1, VERSIONS, W1, W2, Talk, only

KEY = bytes(range(KEY_BYTES))
LEASE = 10.0
PEER_TIMEOUT = 10.0


class Journaled(Talk):
    """A dispatcher whose records are stored."""

    journaled = True

    def __init__(self, **config) -> None:
        super().__init__(**config)
        self._units: list[bytes] = []

    def restart(self, *, last_call_lost: bool = False) -> None:
        """Rebuild the dispatcher; what it did since `store` may be lost."""
        if not last_call_lost:
            self.store()
        state = rebuild([], self._units)
        self.logic = Dispatcher(
            self.config, random.Random(1), self.now, journaled=True, state=state
        )

    def store(self) -> None:
        self._units.append(self.logic.take_unit())

    def again(self, peer: int, **fields) -> list[tuple[int, object]]:
        """Let the worker of session `peer` open another one after a restart."""
        known: dict[str, Any] = {
            "worker_id": self.worker_ids[peer],
            "journal_id": self.journal,
            "key": self.key(peer),
        }
        address = f"host:{peer}"
        hello = m.WorkerHello(1, 1, address, {"tcp": address}, VERSIONS, **known | fields)
        return self.say(peer, hello)

    @property
    def journal(self) -> str:
        return self.logic.state.history.journal_id


def _client_hello(welcome: m.ClientWelcome) -> m.ClientHello:
    return m.ClientHello(
        1,
        1,
        "data",
        "job",
        m.JobParameters(ShardingPolicy.DYNAMIC),
        (0,),
        client_id=welcome.client_id,
        journal_id=welcome.journal_id,
        key=welcome.key,
    )


def _reading(talk: Talk, *workers: int) -> m.ClientWelcome:
    """Let workers join and a client read; return its welcome."""
    for worker in workers:
        talk.join(worker)
    [(_, welcome)] = only(talk.read(C1), m.ClientWelcome)
    assert isinstance(welcome, m.ClientWelcome)
    return welcome


# ── splits and tasks ──────────────────────────────────────────────────────────────────────────────
def test_announced_splits_are_acknowledged_after_a_restart():
    talk = Journaled()
    welcome = _reading(talk, W1)
    task = talk.task(W1)
    talk.say(W1, m.SplitRequest(task, 0, 0, want=2))
    talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0]))
    talk.restart()
    talk.say(C1, _client_hello(welcome))
    talk.again(W1, tasks=[task])
    said = talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0, 1], want=1))
    grants = [grant for _, grant in only(said, m.SplitGrant)]
    assert [grant.begun for grant in grants if grant.begun] == [[0, 1]]
    assert [split for grant in grants for split, _ in grant.splits] == [2]


def test_split_whose_beginning_was_not_stored_may_go_elsewhere():
    talk = Journaled()
    _reading(talk, W1, W2)
    first, second = talk.task(W1), talk.task(W2)
    talk.store()
    talk.say(W1, m.SplitRequest(first, 0, 0, begin=[0]))
    talk.restart(last_call_lost=True)
    talk.again(W2, tasks=[second])
    talk.say(W2, m.SplitRequest(second, 0, 0, begin=[0]))
    talk.pass_time(RETURN_SECONDS)
    talk.again(W1, tasks=[first])
    [(_, grant)] = only(talk.say(W1, m.SplitRequest(first, 0, 0, begin=[0])), m.SplitGrant)
    assert (grant.begun, grant.refused) == ([], [0])


def test_task_whose_start_was_not_sent_is_started_after_a_restart():
    talk = Journaled()
    _reading(talk, W1)
    task = talk.task(W1)
    talk.restart()
    assert [start.task_id for _, start in only(talk.again(W1), m.TaskStart)] == [task]


def test_worker_that_served_another_journal_is_a_new_one():
    """It has dropped its tasks: to start them again would lose what they have begun, silently."""
    talk = Journaled()
    talk.join(W1, instance="w", session=1)
    [(_, welcome)] = only(talk.read(C1), m.ClientWelcome)
    task = talk.task(W1)
    talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0]))
    talk.restart()
    talk.say(C1, _client_hello(welcome))
    said = talk.again(W1, worker_id=5, journal_id="another", key=b"", instance="w", session=3)
    [(_, again)] = only(said, m.WorkerWelcome)
    assert again.worker_id != talk.worker_ids[W1]
    [lost] = [lost for _, tasks in only(said, m.Tasks) for lost in tasks.lost]
    assert (lost.task_id, lost.splits_begun) == (task, 1)
    assert [start.task_id for _, start in only(said, m.TaskStart)] != [task]


def test_worker_that_missed_its_welcome_is_known_after_a_restart():
    talk = Journaled()
    talk.join(W1, instance="w", session=1)
    talk.restart()
    said = talk.again(W1, worker_id=None, journal_id="", key=b"", instance="w", session=2)
    assert only(said, m.WorkerWelcome)[0][1].worker_id == talk.worker_ids[W1]


def test_draining_worker_gets_no_task_after_a_restart():
    talk = Journaled()
    talk.join(W1)
    talk.store()
    talk.say(W1, m.WorkerDraining())
    talk.restart(last_call_lost=True)
    talk.again(W1, draining=True)
    assert not only(talk.read(C1), m.TaskStart)


def test_holders_may_reattach_within_the_peer_timeout_and_a_lease():
    talk = Journaled()
    talk.join(W1)
    talk.restart()
    talk.pass_time(LEASE + PEER_TIMEOUT - 0.5)
    assert talk.worker_ids[W1] in talk.logic.state.workers
    talk.pass_time(1.0)
    assert talk.worker_ids[W1] not in talk.logic.state.workers


# ── addresses ─────────────────────────────────────────────────────────────────────────────────────
def _newcomer(peer: int) -> m.WorkerHello:
    return m.WorkerHello(1, 1, f"host:{peer}", {}, VERSIONS, instance="new", session=1)


def test_live_worker_keeps_its_address():
    talk = Talk()
    talk.join(W1)
    for _ in range(5):
        talk.now += 2.9
        talk.say(W1, m.Heartbeat())
        [(_, refused)] = only(talk.say(W2, _newcomer(W1)), m.Refused)
        assert refused.error.code == "AlreadyExistsError"
    assert talk.worker_ids[W1] in talk.logic.state.workers


def test_worker_whose_supervisor_vouches_keeps_its_address():
    talk = Talk()
    talk.join(W1)
    talk.say(S1, m.SupervisorHello(1, 1))
    talk.now += 2.9
    talk.say(S1, m.KeepAlive({talk.worker_ids[W1]: talk.key(W1)}))
    talk.now += 2.9
    assert only(talk.say(W2, _newcomer(W1)), m.Refused)


@pytest.mark.parametrize("restarted", [False, True])
def test_restarted_process_gets_its_address_at_once(restarted):
    """Its predecessor's session is broken, or was opened with an earlier dispatcher."""
    talk = Journaled()
    talk.join(W1)
    if restarted:
        talk.restart()
    else:
        talk.logic.disconnected(W1, talk.now)
    assert only(talk.say(W2, _newcomer(W1)), m.WorkerWelcome)


def test_late_death_report_spares_the_successor():
    talk = Journaled()
    talk.join(W1)
    dead, key = talk.worker_ids[W1], talk.key(W1)
    talk.restart()
    [(_, welcome)] = only(talk.say(W2, _newcomer(W1)), m.WorkerWelcome)
    for session in (S1, S1 + 1):
        talk.say(session, m.SupervisorHello(1, 1))
        talk.say(session, m.WorkerDied(dead, "it was killed", key))
        assert list(talk.logic.state.workers) == [welcome.worker_id]
        talk.restart()


# ── clients ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("restarted", [False, True])
def test_client_that_missed_its_welcome_is_registered_once(restarted):
    talk = Journaled()
    talk.join(W1)
    [(_, first)] = only(talk.read(C1, key=KEY), m.ClientWelcome)
    if restarted:
        talk.restart()
        talk.again(W1, tasks=[talk.task(W1)])
    said = talk.read(C2, key=KEY)
    [(_, second)] = only(said, m.ClientWelcome)
    assert (second.client_id, second.key) == (first.client_id, KEY)
    assert second.compression == first.compression == "AUTO"
    assert [info.task_id for info in only(said, m.Tasks)[0][1].added] == [talk.task(W1)]
    assert len(talk.logic.state.clients) == 1


def test_clients_without_a_key_are_different():
    talk = Talk()
    talk.read(C1)
    talk.read(C2)
    assert len(talk.logic.state.clients) == 2


def test_journaled_dispatcher_tells_how_long_to_wait():
    welcome = _reading(Journaled(dispatcher_patience_ms=5000), W1)
    assert welcome.dispatcher_patience_ms == 5000
    assert _reading(Talk(), W1).dispatcher_patience_ms == 0


def test_only_a_dispatcher_without_a_journal_tells_its_end():
    with_journal, without = Journaled(), Talk()
    _reading(with_journal, W1)
    _reading(without, W1)
    assert with_journal.logic.stop() == []
    assert without.logic.stop() == [Send(C1, m.DispatcherStopped())]


@pytest.mark.parametrize(("journaled", "advice"), [(True, "`work_dir`"), (False, "begin it again")])
def test_client_of_another_journal_is_told_what_to_do(journaled, advice):
    talk = Journaled() if journaled else Talk()
    welcome = msgspec.structs.replace(_reading(talk, W1), journal_id="another")
    [(_, refused)] = only(talk.say(C2, _client_hello(welcome)), m.Refused)
    assert refused.error.code == "UnavailableError"
    assert advice in refused.error.message
