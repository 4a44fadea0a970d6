"""Messages to the dispatcher with values that no worker or client sends."""

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.dataset.options import Options
from stoker.dataset.streams.call_ranges import CallRange
from stoker.dataset.tree.splits import ENDLESS, IndexSplits, ListedSplits, Source
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.dispatcher.split_tracker import REMEMBERED
from stoker.service.processing_modes import ShardingPolicy
from tests.service.test_dispatcher_logic import C1, FOUR, S1, TREE, VERSIONS, W1, W2, Talk, page

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
    assert iteration.splits_begun_by(task) == 2


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


def test_negative_consumption_is_refused():
    talk, task = reading()
    assert "must not be negative" in refused(talk.say(C1, m.ClientClose({task: (0, -1)})))
    assert talk.logic.state.clients


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


NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 10**9, 2**62])


def messages(ids) -> st.SearchStrategy:
    """Messages with ids that exist and values that may not."""
    number = st.one_of(st.sampled_from(ids), NUMBERS)
    return st.one_of(
        st.builds(
            m.SplitRequest,
            number,
            NUMBERS,
            NUMBERS,
            st.lists(NUMBERS),
            NUMBERS,
            NUMBERS,
            st.booleans(),
        ),
        st.builds(page, number, st.lists(st.just("a")), NUMBERS, NUMBERS, NUMBERS),
        st.builds(m.ListingFailed, number, st.just(ErrorRecord("OSError", "no"))),
        st.builds(m.TaskProgress, number, st.booleans(), st.booleans(), NUMBERS),
        st.builds(m.TaskRead, number),
        st.builds(m.KeepAlive, st.dictionaries(number, st.just(b""))),
        st.builds(
            m.WorkerDied,
            number,
            st.sampled_from(["", "x"]),
            st.sampled_from([b"", bytes(16)]),
            st.dictionaries(number, st.lists(st.builds(CallRange, *[NUMBERS] * 3), max_size=2)),
            NUMBERS,
        ),
        st.builds(m.ClientClose, st.dictionaries(number, st.tuples(NUMBERS, NUMBERS))),
        st.builds(
            m.WorkerHello,
            st.just(1),
            st.just(1),
            st.sampled_from(["host:1", "host:2", ""]),
            st.just({}),
            st.just(VERSIONS),
            worker_id=st.one_of(st.none(), number),
            tasks=st.lists(number),
            readers=st.dictionaries(number, st.lists(number)),
            listings=st.lists(number),
        ),
        st.just(CLIENT_HELLO),
        st.just(m.SupervisorHello(1, 1)),
        st.just(m.Heartbeat()),
        st.just(m.WorkerLeave()),
    )


@given(st.data())
def test_no_message_raises_in_the_logic(data):
    talk, task = reading()
    talk.join(W2)
    talk.say(S1, m.SupervisorHello(1, 1))
    state = talk.logic.state
    journal = talk.logic._ledger.journal_id
    for _ in range(data.draw(st.integers(1, 15))):
        ids = [task, *state.tasks, *state.workers, *state.clients, *state.iterations]
        message = data.draw(messages(ids))
        if isinstance(message, m.WorkerHello):
            message = msgspec.structs.replace(message, journal_id=journal)
        if isinstance(message, m.WorkerDied) and message.worker_id in state.workers:
            key = state.workers[message.worker_id].added.key
            message = msgspec.structs.replace(message, key=key)
        talk.say(data.draw(st.sampled_from([W1, W2, C1, S1, 5])), message)
    talk.pass_time(30)
