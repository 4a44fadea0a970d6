"""Messages to the dispatcher with values that no worker or client sends."""

import tracemalloc

import msgspec
import pytest

from stoker.dataset.options import Options
from stoker.dataset.tree.splits import ENDLESS, IndexSplits, ListedSplits, Source
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.service import messages as m
from stoker.service.dispatcher.entities.split_tracker import REMEMBERED
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.dispatcher.test_dispatcher_logic import (
    C1,
    FOUR,
    S1,
    TREE,
    VERSIONS,
    W1,
    W2,
    Talk,
    page,
)

HELLO = m.WorkerHello(1, 1, "host:1", {}, VERSIONS)
CLIENT_HELLO = m.ClientHello(1, 1, "data", "job", m.JobParameters(ShardingPolicy.DYNAMIC), (0,))


def reading(splits=FOUR) -> tuple[Talk, int]:
    """Return a dispatcher with a worker and a client, and the worker's task."""
    talk = Talk(splits)
    talk.join(W1)
    talk.read(C1)
    return talk, talk.task(W1)


def refused(said) -> str:
    """Return the message of the only refusal."""
    [error] = [x.error.message for _, x in said if isinstance(x, m.Refused)]
    return error


def test_split_announced_twice_is_begun_once():
    talk, task = reading()
    talk.say(W1, m.SplitRequest(task, 0, 0, want=1))
    said = talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0, 0, 3, 3, 9, 9]))
    assert said == [(W1, m.SplitGrant(task, 0, 0, begun=[0, 3], refused=[9]))]
    [iteration] = talk.logic.state.iterations.values()
    assert iteration.mode_state.begun_by(task) == 2


def test_announcing_a_distant_split_takes_no_memory():
    talk, task = reading(IndexSplits(ENDLESS))
    distant = 3 * 10**7
    tracemalloc.start()
    try:
        said = talk.say(W1, m.SplitRequest(task, 0, 0, begin=[distant], want=3))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    answer, more = [x for _, x in said if isinstance(x, m.SplitGrant)]
    assert answer.begun == [distant]
    assert [number for number, _ in more.splits] == [0, 1, 2]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"source_epoch": -1}, "must not be negative, got -1, 0 and 1"),
        ({"want": -1}, "must not be negative, got 0, -1 and 1"),
        ({"least": -1}, "must not be negative, got 0, 0 and -1"),
        ({"begin": list(range(REMEMBERED + 1))}, f"may announce {REMEMBERED} splits, got"),
    ],
)
def test_impossible_split_request_is_refused_before_a_change(request_, words):
    talk, task = reading()
    commits = talk.logic.commits
    said = talk.say(
        W1, m.SplitRequest(**({"task_id": task, "source": 0, "source_epoch": 0} | request_))
    )
    assert words in refused(said)
    assert talk.logic.commits == commits


@pytest.mark.parametrize(
    "impossible",
    [
        page(0, [], total=3),
        page(0, ["a", "b"], total=1),
        page(0, ["a"], total=-1),
        msgspec.structs.replace(page(0, [], total=3), values=msgspec.Raw(b"\x01")),
    ],
)
def test_impossible_page_is_refused_before_a_change(impossible):
    talk = Talk(ListedSplits())
    talk.join(W1)
    [listing] = [x for _, x in talk.read(C1) if isinstance(x, m.ListSplits)]
    commits = talk.logic.commits
    said = talk.say(W1, msgspec.structs.replace(impossible, listing_id=listing.listing_id))
    assert "SplitsPage" in refused(said)
    assert talk.logic.commits == commits


@pytest.mark.parametrize(
    "sources",
    [
        [Source(0, "sim", "", IndexSplits(-1))],
        [Source(0, "sim", "", FOUR), Source(0, "sim", "", ListedSplits())],
    ],
)
def test_impossible_sources_are_not_registered(sources):
    talk = Talk()
    spec = spec_to_wire(UnknownSpec())
    reply = talk.call(m.RegisterDataset("other", TREE, spec, Options(), sources))
    assert isinstance(reply, m.Failed)
    assert reply.error.code == "InvalidArgumentError"
    assert len(talk.logic.state.datasets) == 1


def test_impossible_element_spec_is_not_registered():
    reply = Talk().call(m.RegisterDataset("other", TREE, {"kind": "no such"}, Options()))
    assert isinstance(reply, m.Failed)
    assert "not an element_spec" in reply.error.message


@pytest.mark.parametrize("second", [HELLO, CLIENT_HELLO, m.SupervisorHello(1, 1)])
@pytest.mark.parametrize(
    "first",
    [msgspec.structs.replace(HELLO, address="host:2"), CLIENT_HELLO, m.SupervisorHello(1, 1)],
)
def test_second_hello_on_a_session_changes_nothing(first, second):
    talk = Talk()
    talk.say(W1, first)
    commits = talk.logic.commits
    assert "one hello only" in refused(talk.say(W1, second))
    assert talk.logic.commits == commits
    state = talk.logic.state
    assert (
        talk.logic._sessions.leases._deadlines.keys() == state.workers.keys() | state.clients.keys()
    )


def test_id_of_another_worker_is_not_taken_over():
    talk = Talk()
    talk.join(W1)
    first = talk.worker_ids[W1]
    journal = talk.logic._ledger.journal_id
    talk.join(W2, worker_id=first, journal_id=journal)
    assert talk.worker_ids[W2] != first
    assert talk.logic.state.workers.keys() == {first, talk.worker_ids[W2]}


def test_worker_without_an_address_is_refused():
    said = Talk().say(W1, msgspec.structs.replace(HELLO, address=""))
    assert "`address` of a worker must not be empty" in refused(said)


def test_death_without_a_reason_loses_the_worker():
    talk, task = reading()
    talk.say(S1, m.SupervisorHello(1, 1))
    said = talk.say(S1, m.WorkerDied(talk.worker_ids[W1], "", talk.key(W1)))
    [lost] = [each for _, x in said if isinstance(x, m.Tasks) for each in x.lost]
    assert (lost.task_id, lost.reason) == (task, "its process ended")
    talk.say(C1, m.ClientClose())
    assert not talk.logic.state.clients


def test_supervisor_does_not_renew_the_lease_of_a_client():
    talk = Talk(client_timeout_ms=1_000)
    talk.read(C1)
    [(client_id, client)] = talk.logic.state.clients.items()
    talk.say(S1, m.SupervisorHello(1, 1))
    for _ in range(8):
        talk.say(S1, m.KeepAlive({client_id: client.key}))
        talk.pass_time(0.25)
    assert not talk.logic.state.clients
