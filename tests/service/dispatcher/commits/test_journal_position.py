"""A dispatcher whose journal does not contain all that its peers have received."""

import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.errors import DataLossError
from stoker.service import messages as m
from stoker.service.dispatcher.commits.journal_position import OutdatedJournalError
from stoker.service.dispatcher.logic import RETURN_SECONDS, Dispatcher
from stoker.service.dispatcher.state.boots import KEPT_BOOTS
from stoker.service.dispatcher.state.snapshot import compact, rebuild
from stoker.service.dispatcher.state.state import State
from stoker.service.journal import open_journal
from tests.service.dispatcher.test_dispatcher_logic import C1, VERSIONS, W1, W2, Talk, only
from tests.service.journal.faulty_stores import register

SUPERVISOR = 90
register()


class Dispatchers(Talk):
    """Dispatchers, one after another, on units that may be lost.

    Attributes:
        units: the units of the journal.
        snapshot: the parts before them.
    """

    journaled = True

    def __init__(self, **config) -> None:
        super().__init__(**config)
        self.snapshot: list[bytes] = []
        self.units: list[bytes] = []
        self.store()

    def store(self) -> None:
        if unit := self.logic.take_unit():
            self.units.append(unit)

    def say(self, peer: int, message: m.ToDispatcher) -> list[tuple[int, Any]]:
        said = super().say(peer, message)
        self.store()
        return said

    def restart(self, units: int | None = None, seed: int = 1) -> None:
        """Start another dispatcher on the first `units` of the journal."""
        self.units = self.units[:units]
        state = rebuild(self.snapshot, self.units)
        self.logic = Dispatcher(
            self.config, random.Random(seed), self.now, journaled=True, state=state
        )
        self.store()

    def compact(self) -> None:
        self.snapshot, self.units = list(compact(self.snapshot, self.units)), []

    def come(self, peer: int, position: m.JournalPosition | None, **fields) -> list:
        """Let a new session of a worker, with the position that it has received, say hello."""
        address = f"host:{peer}"
        known: dict[str, Any] = {
            "worker_id": self.worker_ids[peer],
            "journal_id": self.logic.state.history.journal_id,
            "key": self.key(peer),
        }
        fields = known | {"journal_position": position} | fields
        return self.say(peer, m.WorkerHello(1, 1, address, {"tcp": address}, VERSIONS, **fields))


def position_of(said: list[tuple[int, Any]]) -> m.JournalPosition:
    """Return the position in the last message."""
    position = said[-1][1].journal_position
    assert isinstance(position, m.JournalPosition)
    return position


def test_messages_have_the_position_of_their_records():
    talk = Dispatchers()
    for peer in (W1, W2):
        assert position_of(talk.join(peer)).position == len(talk.units)
    said: list[tuple[int, Any]] = talk.read(C1)
    assert {x.journal_position.position for _, x in said} == {len(talk.units)}
    task = talk.task(W1)
    [(_, grant)] = talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0]))
    assert grant.journal_position.position == len(talk.units)
    assert len(grant.journal_position.signature) == 16


def test_a_dispatcher_without_a_journal_sends_no_position():
    talk = Talk()
    said: list[tuple[int, Any]] = [*talk.join(W1), *talk.read(C1)]
    assert {x.journal_position for _, x in said} == {None}


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_journal_without_the_last_units_ends_the_dispatcher(lost: int):
    talk = Dispatchers(work_dir="/journal")
    talk.join(W1)
    talk.join(W2)
    talk.read(C1)
    for split in range(3):
        last = position_of(talk.say(W1, m.SplitRequest(talk.task(W1), 0, 0, begin=[split])))
    end = len(talk.units)
    talk.restart(end - lost)
    with pytest.raises(OutdatedJournalError) as caught:
        talk.come(W1, last)
    assert isinstance(caught.value, DataLossError)
    for part in (f"position {end - lost} ", f"position {end},", "/journal ", f"worker host:{W1}"):
        assert part in str(caught.value)


def test_equal_and_older_positions_are_fine():
    talk = Dispatchers()
    first = position_of(talk.join(W1))
    last = position_of(talk.join(W2))
    for position in (None, first, last):
        talk.restart()
        assert only(talk.come(W1, position), m.WorkerWelcome)
    talk.compact()
    talk.restart()
    assert only(talk.come(W1, first), m.WorkerWelcome)


def test_the_key_and_the_starts_outlive_a_compaction():
    talk = Dispatchers()
    talk.join(W1)
    talk.compact()
    snapshot = list(talk.snapshot)
    last = position_of(talk.join(W2))
    talk.compact()
    talk.restart()
    assert only(talk.come(W2, last), m.WorkerWelcome)
    talk.snapshot, talk.units = snapshot, []
    talk.restart()
    with pytest.raises(OutdatedJournalError):
        talk.come(W1, last)


def test_a_journal_that_has_grown_again_does_not_hide_its_loss():
    """Positions alone would not show it: each start of a dispatcher is named in the journal."""
    talk = Dispatchers()
    talk.join(W1)
    last = position_of(talk.join(W2))
    for seed in range(2, 5):
        talk.restart(2 if seed == 2 else None, seed)
    assert len(talk.units) > last.position
    with pytest.raises(OutdatedJournalError):
        talk.come(W1, last)


def test_a_position_of_a_lost_start_is_found():
    """The copy was made after an orderly stop, so both histories begin at one position."""
    talk = Dispatchers()
    talk.join(W1)
    copy = list(talk.units)
    talk.restart(seed=2)
    talk.pass_time(RETURN_SECONDS)
    last = position_of(talk.join(W2))
    talk.units = copy
    talk.restart(seed=3)
    with pytest.raises(OutdatedJournalError):
        talk.come(W1, last)


def test_positions_of_forgotten_starts_are_accepted():
    talk = Dispatchers()
    last = position_of(talk.join(W1))
    for seed in range(KEPT_BOOTS + 1):
        talk.restart(seed=seed)
    assert last.boot not in talk.logic.state.history.boots
    assert only(talk.come(W1, last), m.WorkerWelcome)


@pytest.mark.parametrize(
    "changed",
    [{"position": 999}, {"boot": 7}, {"signature": b""}, {"signature": bytes(16)}],
    ids=["position", "boot", "no signature", "wrong signature"],
)
def test_a_position_with_a_wrong_signature_is_refused(changed):
    talk = Dispatchers()
    position = msgspec.structs.replace(position_of(talk.join(W1)), **changed)
    talk.restart()
    (_, refused), end = talk.come(W1, position)
    assert refused.error.code == "PermissionDeniedError"
    assert end == (W1, "end")


def test_a_position_of_another_journal_is_ignored():
    other = Dispatchers()
    other.logic = Dispatcher(other.config, random.Random(9), 0.0, journaled=True)
    position = position_of(other.join(W1))
    talk = Dispatchers()
    assert only(talk.join(W1, journal_position=position), m.WorkerWelcome)


def test_clients_and_supervisors_end_an_outdated_dispatcher_too():
    talk = Dispatchers()
    talk.join(W1)
    welcome = position_of(talk.say(SUPERVISOR, m.SupervisorHello(1, 1)))
    end = len(talk.units)
    talk.join(W2)
    [(_, client)] = only(talk.read(C1), m.ClientWelcome)
    talk.restart(end - 1)
    with pytest.raises(OutdatedJournalError, match="supervisor"):
        talk.say(SUPERVISOR, m.SupervisorHello(1, 1, journal_position=welcome))
    hello = {"client_id": client.client_id, "journal_id": client.journal_id, "key": client.key}
    with pytest.raises(OutdatedJournalError, match=f"client {client.client_id} of job 'job'"):
        talk.read(C1, **hello, journal_position=client.journal_position)


def test_no_split_is_given_before_the_peers_of_the_journal_return():
    talk = Dispatchers()
    talk.join(W1)
    talk.join(W2)
    talk.read(C1)
    task = talk.task(W1)
    talk.restart()
    welcomed = talk.come(W1, None, tasks=[task])
    assert {x.journal_position for _, x in welcomed} == {None}
    assert talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0])) == []
    said = talk.pass_time(RETURN_SECONDS)
    [(_, grant)] = only(said, m.SplitGrant)
    assert grant.begun == [0]
    assert grant.journal_position.position == talk.logic.state.history.position + 1


def test_splits_are_given_when_the_last_peer_has_returned():
    talk = Dispatchers()
    talk.join(W1)
    talk.join(W2)
    [(_, client)] = only(talk.read(C1), m.ClientWelcome)
    task = talk.task(W1)
    talk.restart()
    hello = {"client_id": client.client_id, "journal_id": client.journal_id, "key": client.key}
    talk.read(C1, **hello)
    talk.come(W1, None, tasks=[task])
    talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0]))
    [(peer, grant)] = only(talk.come(W2, None, tasks=[talk.task(W2)]), m.SplitGrant)
    assert (peer, grant.begun) == (W1, [0])


def test_a_log_that_is_cut_anywhere_is_found(tmp_path: Path):
    """Each part of a log is a journal that SQLite takes for whole."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    journal = open_journal(str(whole), compact, failed=print, durable=lambda _: None)
    talk = Dispatchers()
    talk.join(W1)
    talk.read(C1)
    for split in range(4):
        last = position_of(talk.say(W1, m.SplitRequest(talk.task(W1), 0, 0, begin=[split])))
    for unit in talk.units:
        journal._store.write([unit])  # a commit of its own
    shutil.copytree(whole, tmp_path / "copy")
    journal.close(10)
    log = (tmp_path / "copy" / "journal.sqlite-wal").read_bytes()
    found = set()
    for size in [*range(0, len(log), 1009), len(log)]:
        shutil.rmtree(cut, ignore_errors=True)
        shutil.copytree(tmp_path / "copy", cut)
        (cut / "journal.sqlite-wal").write_bytes(log[:size])
        state = _state_in(cut)
        if state is None:
            continue
        found.add(state.history.position)
        talk.logic = Dispatcher(talk.config, random.Random(2), 0.0, journaled=True, state=state)
        address = f"host:{W1}"
        hello = m.WorkerHello(1, 1, address, {"tcp": address}, VERSIONS, journal_position=last)
        if state.history.position < last.position:
            with pytest.raises(OutdatedJournalError):
                talk.logic.received(W1, hello, 0.0)
        else:
            talk.logic.received(W1, hello, 0.0)
    assert found == set(range(1, last.position + 1))


def test_a_store_without_its_newest_objects_is_found(tmp_path: Path):
    url = f"directory://{tmp_path}/store"
    talk = Dispatchers()
    last = position_of(talk.join(W1))
    journal = open_journal(url, compact, failed=print, durable=lambda _: None)
    for unit in talk.units:
        journal._store.write([unit])
    journal.close(10)
    max((tmp_path / "store" / "journal").glob("group-*")).unlink()
    state = _state_in(url)
    assert state is not None
    talk.logic = Dispatcher(talk.config, random.Random(2), 0.0, journaled=True, state=state)
    with pytest.raises(OutdatedJournalError):
        talk.join(W1, journal_position=last)


def _state_in(work_dir: object) -> State | None:
    """Return the state of a journal; ``None`` if it is empty."""
    journal = open_journal(str(work_dir), compact, failed=print, durable=lambda _: None)
    try:
        history = journal.read()
        state = rebuild(history.snapshot, history.units)
    finally:
        journal.close(10)
    return state if state.history.journal_id else None
