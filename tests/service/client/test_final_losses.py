"""The end of an epoch while other clients hold elements, or are lost with them."""

import contextlib
import logging
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

import stoker
from stoker.errors import DataLossError, UnavailableError
from stoker.service import messages as m
from stoker.service.api.read_options import ReadOptions
from stoker.service.client import actions as a
from stoker.service.client import logic as c
from stoker.service.client.final_losses import ANSWER_SECONDS, ASK_AGAIN_SECONDS
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.client.test_client_logic import HELLO, WELCOME
from tests.service.dispatcher.test_dispatcher_logic import C1, C2, W1, Talk, only
from tests.serving import Service, eventually, iterator_with_deadline

FINAL, HELD, SILENT = m.EndState(True), m.EndState(False, True), m.EndState(False, True, 58_100)
IN_FLIGHT = m.EndState(False)


# ── dispatcher ───────────────────────────────────────────────────────────────────────────────────
def two_clients() -> Talk:
    """Return a dispatcher whose only task has computed everything for two clients."""
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    talk.read(C2)
    talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True))
    return talk


def heartbeats_of_others(talk: Talk, seconds: int) -> None:
    """Let time pass in which the second client sends nothing."""
    for _ in range(seconds):
        talk.pass_time(1)
        talk.say(W1, m.Heartbeat())
        talk.say(C1, m.Heartbeat())


def asked(talk: Talk) -> m.EndState:
    [(peer, answer)] = only(talk.say(C1, m.ReadToEnd()), m.EndState)
    assert peer == C1
    return answer


def test_elements_of_a_living_client_are_held():
    assert asked(two_clients()) == HELD


def test_rest_of_the_lease_of_a_client_without_a_session_is_told():
    talk = two_clients()
    talk.logic.disconnected(C2, talk.now)
    talk.now += 5
    assert asked(talk) == m.EndState(False, True, 55_000)


def test_client_that_misses_heartbeats_is_silent():
    talk = two_clients()
    heartbeats_of_others(talk, 40)
    assert asked(talk) == m.EndState(False, True, 20_000)


def test_client_that_comes_back_is_not_silent():
    talk = two_clients()
    _, client = talk.logic.state.clients.values()
    talk.logic.disconnected(C2, talk.now)
    assert asked(talk).silent_ms
    journal = talk.logic._ledger.journal_id
    talk.read(C2, client_id=client.client_id, journal_id=journal, key=client.key)
    assert asked(talk) == HELD


def test_losses_are_final_when_the_worker_has_counted_them():
    talk = two_clients()
    talk.logic.disconnected(C2, talk.now)
    heartbeats_of_others(talk, 61)
    assert len(talk.logic.state.clients) == 1
    assert asked(talk) == IN_FLIGHT
    said = talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True, delivered=True, dropped=3))
    [(_, tasks)] = only(said, m.Tasks)
    assert [x.elements for x in tasks.dropped] == [3]
    assert asked(talk) == FINAL


# ── client ───────────────────────────────────────────────────────────────────────────────────────
def at_end(on_loss: str, *, shared: bool = True) -> c.Client:
    """Return a client that has read all that is left for it."""
    options = ReadOptions(
        processing_mode=ShardingPolicy.DYNAMIC, dispatcher_address="service:1", on_loss=on_loss
    )
    client = c.Client(HELLO, options, random.Random(0), 0.0)
    client.session_opened(0.0)
    client.session_message(WELCOME, 0.0)
    client.session_message(m.Tasks(computed=True, shared=shared), 0.0)
    return client


def ends(client: c.Client, now: float = 0.0) -> bool:
    return isinstance(client.take(0.0, now)[0], c.EndOfIteration)


def test_lone_client_asks_nobody():
    client = at_end("warn", shared=False)
    assert client.take(0.0, 0.0)[1] == []
    assert ends(client)
    assert client.final_losses.known


@pytest.mark.parametrize("on_loss", ["warn", "raise"])
@pytest.mark.parametrize("answer", [FINAL, HELD])
def test_living_clients_are_not_waited_for(on_loss, answer):
    client = at_end(on_loss)
    assert client.take(0.0, 0.0) == (None, [a.ToDispatcher(m.ReadToEnd())])
    assert client.session_message(answer, 0.0) == []
    assert ends(client)
    assert client.final_losses.known == answer.final


def test_silent_client_is_one_warning():
    client = at_end("warn")
    client.take(0.0, 0.0)
    [warning] = client.session_message(SILENT, 0.0)
    assert isinstance(warning, a.Warn)
    assert "`stoker status` counts them in 59 s" in warning.text
    assert client.session_message(SILENT, 0.0) == []
    assert ends(client)
    assert not client.final_losses.known


def test_silent_client_is_waited_for_to_raise_its_losses():
    client = at_end("raise")
    client.take(0.0, 0.0)
    client.session_message(SILENT, 0.0)
    assert client.take(0.0, 0.5) == (None, [])
    again = ASK_AGAIN_SECONDS
    assert client.take(0.0, again) == (None, [a.ToDispatcher(m.ReadToEnd())])
    client.session_message(IN_FLIGHT, again)
    dropped = m.ElementsDropped(20, "here:1", 7)
    client.session_message(m.Tasks(dropped=[dropped], computed=True, shared=True), again)
    assert "7 elements" in (client.losses.take() or "")
    assert client.take(0.0, again) == (None, [a.ToDispatcher(m.ReadToEnd())])
    client.session_message(FINAL, again)
    assert ends(client, again)
    assert client.final_losses.known


def test_without_an_answer_the_end_comes_soon():
    client = at_end("warn")
    assert not ends(client, 0.0)
    assert not ends(client, ANSWER_SECONDS - 0.1)
    assert ends(client, ANSWER_SECONDS)
    assert not client.final_losses.known


def test_without_a_dispatcher_losses_cannot_be_raised():
    warns, raises = at_end("warn"), at_end("raise")
    for client in (warns, raises):
        client.take(0.0, 0.0)
        client.session_lost(0.0)
    assert ends(warns, 0.0)
    assert not ends(raises, ANSWER_SECONDS)
    raises.tick(60.0)
    assert isinstance(raises.take(0.0, 60.0)[0], UnavailableError)


# ── processes ────────────────────────────────────────────────────────────────────────────────────
TRAINER = """
import sys, time
import stoker
dataset = stoker.Dataset.range(200).distribute(sys.argv[1], "distributed_epoch", job_name="job")
iterator = iter(dataset)
print(next(iterator), flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def killed_trainer(service: Service) -> Iterator[None]:
    """Kill a process that has elements of the job, and wait until the dispatcher notices."""
    sessions = service.dispatcher._shell._sessions
    others = len(sessions)
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER, service.target], stdout=-1, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        process.send_signal(signal.SIGKILL)
        assert eventually(lambda: len(sessions) == others)
        yield
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def survivor(service: Service, on_loss: str) -> stoker.Dataset:
    return stoker.Dataset.range(200).distribute(
        service.target, "distributed_epoch", job_name="job", on_loss=on_loss
    )


def test_survivor_raises_the_losses_of_a_killed_trainer():
    with (
        Service(1, client_timeout_ms=3_000) as service,
        killed_trainer(service),
        iterator_with_deadline(survivor(service, "raise"), 50.0) as iterator,
    ):
        found: list[int] = []
        with pytest.raises(DataLossError, match="another client was lost"):
            found.extend(iterator)
        found.extend(iterator)
        stats = iterator.stats()
    lost = stats["elements_lost"]
    assert lost > 0
    assert stats["losses_final"]
    assert len(found) + lost >= 199  # the killed one may have consumed one


def test_survivor_that_does_not_raise_ends_at_once_and_says_when_losses_are_known(caplog):
    caplog.set_level(logging.WARNING, "stoker.client")
    with (
        Service(1) as service,
        killed_trainer(service),
        iterator_with_deadline(survivor(service, "warn")) as iterator,
    ):
        assert len(list(iterator)) < 200
        assert not iterator.stats()["losses_final"]
    assert caplog.text.count("`stoker status` counts them in") == 1


def test_losses_of_a_lone_reader_are_final():
    with Service(1) as service, iterator_with_deadline(survivor(service, "warn")) as iterator:
        assert not iterator.stats()["losses_final"]
        assert len(list(iterator)) == 200
        assert iterator.stats()["losses_final"]
