"""The dispatcher's logic by values: messages in, actions out."""

import math
import random

import msgspec
import pytest

from stoker.dataset.options import Options
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, Source, Unsplittable
from stoker.dataset.tree.structure import WireNode, structure_of
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.logic import Dispatcher, EndSession, Send
from stoker.service.dispatcher.modes.states import splits_of
from stoker.service.keys import KEY_BYTES, reader_key
from stoker.service.rules.processing_modes import ShardingPolicy

VERSIONS = m.Versions("3.11", "2")
TREE = msgspec.msgpack.encode([WireNode("sim", [], msgspec.Raw(b"\x80"), {}, "")])
FOUR = IndexSplits(4)
W1, W2, C1, C2, S1 = 1, 2, 11, 12, 21
"""Sessions of two workers, two clients and a supervisor."""


class Talk:
    """A dispatcher and the messages it sends, by session."""

    journaled = False

    def __init__(self, splits=FOUR, **config) -> None:
        self.config = DispatcherConfig(**config)
        self.logic = Dispatcher(self.config, random.Random(0), 0.0, journaled=self.journaled)
        self.now = 0.0
        self.worker_ids: dict[int, int] = {}
        spec = spec_to_wire(UnknownSpec())
        sources = [Source(0, "sim", "train.py:1", splits)]
        request = m.RegisterDataset("digest", TREE, spec, Options(), sources, dataset_id="data")
        assert self.call(request) == m.DatasetRegistered("data")

    def say(self, peer: int, message: m.ToDispatcher) -> list[tuple[int, object]]:
        """Return the answers; a session that ends is ``(peer, "end")``."""
        return self._shown(self.logic.received(peer, message, self.now))

    def call(self, request: m.Request) -> m.Reply:
        reply, _ = self.logic.call(request, self.now)
        return reply

    def pass_time(self, seconds: float) -> list[tuple[int, object]]:
        """Advance the clock in ticks of the dispatcher; return its messages."""
        said = []
        for _ in range(round(seconds / 0.25)):
            self.now += 0.25
            said += self._shown(self.logic.tick(self.now))
        return said

    def join(self, peer: int, **fields) -> list[tuple[int, object]]:
        address = f"host:{peer}"
        hello = m.WorkerHello(1, 1, address, {"tcp": address}, VERSIONS, **fields)
        said = self.say(peer, hello)
        [self.worker_ids[peer]] = [
            x.worker_id for _, x in said if isinstance(x, m.WorkerWelcome)
        ] or [0]
        return said

    def read(
        self, peer: int, mode: ShardingPolicy = ShardingPolicy.DYNAMIC, **fields
    ) -> list[tuple[int, object]]:
        fields = {"named": True} | fields
        hello = m.ClientHello(1, 1, "data", "job", m.JobParameters(mode), (0,), **fields)
        return self.say(peer, hello)

    def key(self, peer: int) -> bytes:
        """Return the key of a worker."""
        return self.logic.state.workers[self.worker_ids[peer]].added.key

    def task(self, peer: int) -> int:
        """Return the newest task of a worker."""
        return list(self.logic.state.workers[self.worker_ids[peer]].tasks)[-1]

    @staticmethod
    def _shown(actions) -> list[tuple[int, object]]:
        return [(a.peer, a.message if isinstance(a, Send) else "end") for a in actions]


def only(said, kind):
    """Return the messages of one kind, with their sessions."""
    return [(peer, message) for peer, message in said if isinstance(message, kind)]


def talk_with_held_split(splits: int) -> tuple[Talk, int, int]:
    """Return a dispatcher and two tasks: the first has begun a split and holds the last."""
    talk = Talk(IndexSplits(splits))
    talk.join(W1)
    talk.join(W2)
    talk.read(C1)
    first, second = talk.task(W1), talk.task(W2)
    talk.say(W1, m.SplitRequest(first, 0, 0, want=1))
    talk.say(W1, m.SplitRequest(first, 0, 0, begin=[0], want=1))
    return talk, first, second


def page(
    listing_id: int, values: list, start: int = 0, total: int | None = None, source: int = 0
) -> m.SplitsPage:
    """Return a page of a list of splits: the whole list without `total`."""
    raw = msgspec.Raw(msgspec.msgpack.encode(values))
    return m.SplitsPage(listing_id, source, start, len(values) if total is None else total, raw)


def _refusal(said) -> ErrorRecord:
    [(_, refused)] = only(said, m.Refused)
    return refused.error


def test_new_task_is_sent_to_worker_and_client():
    talk = Talk()
    talk.join(W1)
    said = talk.read(C1)
    [(_, start)] = only(said, m.TaskStart)
    [(_, tasks)] = only(said, m.Tasks)
    assert start.mode == m.SplitTask(sources=[m.SplitSource(0, 4, 4)])
    [(_, welcome)] = only(said, m.ClientWelcome)
    client_id = welcome.client_id
    key = reader_key(start.key, client_id)
    info = m.TaskInfo(start.task_id, "host:1", {"tcp": "host:1"}, [], client_id, key)
    assert tasks == m.Tasks(added=[info], computed=False)


def test_a_session_is_resumed_with_its_key_only():
    talk = Talk()
    [(_, registered)] = only(talk.join(W1), m.WorkerWelcome)
    [(_, welcome)] = only(talk.read(C1), m.ClientWelcome)
    client = {"client_id": welcome.client_id, "journal_id": welcome.journal_id}
    worker = {"worker_id": registered.worker_id, "journal_id": registered.journal_id}
    hello = m.WorkerHello(1, 1, "host:1", {}, VERSIONS, **worker)
    for key in (b"", registered.key[::-1]):
        assert _refusal(talk.read(C2, key=key, **client)).code == "PermissionDeniedError"
        with_key = msgspec.structs.replace(hello, key=key)
        assert _refusal(talk.say(W2, with_key)).code == "PermissionDeniedError"
    assert only(talk.read(C2, key=welcome.key, **client), m.ClientWelcome)
    with_key = msgspec.structs.replace(hello, key=registered.key)
    [(_, again)] = only(talk.say(W2, with_key), m.WorkerWelcome)
    assert again.worker_id == registered.worker_id


def test_no_two_keys_are_equal():
    talk = Talk()
    talk.join(W1)
    said = talk.join(W2) + talk.read(C1) + talk.read(C2)
    keys = [x.key for _, x in said if isinstance(x, m.WorkerWelcome | m.ClientWelcome)]
    keys += [start.key for _, start in only(said, m.TaskStart)]
    keys += [info.key for _, tasks in only(said, m.Tasks) for info in tasks.added]
    assert len(set(keys)) == len(keys) == 9
    assert all(len(key) == KEY_BYTES for key in keys)


def _registration(tree: bytes, **fields) -> m.RegisterDataset:
    spec, sources = spec_to_wire(UnknownSpec()), [Source(0, "sim", "train.py:1", FOUR)]
    fields = {"digest": "other", "structure": structure_of(TREE)} | fields
    return m.RegisterDataset(tree=tree, spec=spec, options=Options(), sources=sources, **fields)


def _presenting(registration: m.RegisterDataset) -> m.ClientHello:
    return m.ClientHello(
        1, 1, "", "job", m.JobParameters(ShardingPolicy.OFF), (0,), registration=registration
    )


def test_welcome_has_the_clients_own_compression():
    talk = Talk()
    for peer, codec in ((C1, "LZ4"), (C2, None)):
        registration = _registration(TREE, compression=codec)
        registration = msgspec.structs.replace(registration, digest=f"digest with {codec}")
        said = talk.say(peer, _presenting(registration))
        [(_, welcome)] = only(said, m.ClientWelcome)
        assert (welcome.compression, welcome.warning) == (codec, "")


def test_client_registers_an_unknown_dataset():
    talk = Talk()
    talk.join(W1)
    assert talk.say(C1, _presenting(_registration(b""))) == [(C1, m.DatasetUnknown())]
    assert len(talk.logic.state.datasets) == 1
    said = talk.say(C1, _presenting(_registration(TREE)))
    assert [type(x) for _, x in said] == [m.ClientWelcome, m.TaskStart, m.Tasks]
    [(_, start)] = only(said, m.TaskStart)
    assert start.dataset_id == "other"


def test_known_dataset_is_not_sent_again():
    talk = Talk()
    talk.join(W1)
    talk.say(C1, _presenting(_registration(TREE)))
    said = talk.say(C2, _presenting(_registration(b"")))
    assert [type(x) for _, x in said] == [m.ClientWelcome, m.Tasks]
    assert len(talk.logic.state.datasets) == 2


def test_client_with_an_invalid_dataset_is_refused():
    said = Talk().say(C1, _presenting(_registration(b"garbage")))
    assert "not a dataset" in _refusal(said).message
    assert said[-1] == (C1, "end")


def test_late_worker_gets_a_task():
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    said = talk.join(W2)
    assert [peer for peer, _ in only(said, m.TaskStart)] == [W2]
    assert [peer for peer, _ in only(said, m.Tasks)] == [C1]


def test_off_assigns_no_splits():
    talk = Talk()
    talk.join(W1)
    [(_, start)] = only(talk.read(C1, ShardingPolicy.OFF), m.TaskStart)
    assert start.mode == m.WholeTask()


def test_announced_splits_are_begun_and_more_assigned():
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    task = talk.task(W1)
    assert talk.say(W1, m.SplitRequest(task, 0, 0, want=8)) == [
        (W1, m.SplitGrant(task, 0, 0, splits=[(0, (0, 1))]))
    ]
    assert talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0], want=8)) == [
        (W1, m.SplitGrant(task, 0, 0, begun=[0])),
        (W1, m.SplitGrant(task, 0, 0, splits=[(1, (1, 2))])),
    ]


def test_end_is_sent_when_all_splits_are_begun():
    talk = Talk(IndexSplits(1))
    talk.join(W1)
    talk.join(W2)
    talk.read(C1)
    first, second = talk.task(W1), talk.task(W2)
    talk.say(W1, m.SplitRequest(first, 0, 0, want=1))
    assert talk.say(W2, m.SplitRequest(second, 0, 0, want=1)) == []
    assert talk.say(W1, m.SplitRequest(first, 0, 0, begin=[0])) == [
        (W1, m.SplitGrant(first, 0, 0, begun=[0])),
        (W2, m.SplitGrant(second, 0, 0, end=True)),
    ]
    assert talk.logic.assigner.waiting == []


def test_splits_of_a_lost_worker_are_reassigned_or_counted():
    talk, first, second = talk_with_held_split(2)
    assert talk.say(W2, m.SplitRequest(second, 0, 0, want=1)) == []
    said = talk.say(W1, m.WorkerLeave())
    lost = m.TaskLost(first, "host:1", "it was stopped", splits_begun=1)
    assert said == [
        (W1, "end"),
        (W2, m.SplitGrant(second, 0, 0, splits=[(1, (1, 2))])),
        (C1, m.Tasks(lost=[lost])),
    ]


def test_only_worker_is_removed_without_others():
    talk = Talk(worker_timeout_ms=10_000)
    talk.join(W1)
    talk.pass_time(11)
    assert talk.logic.state.workers == {}


def test_silent_worker_is_removed():
    talk = Talk(worker_timeout_ms=10_000)
    talk.join(W1)
    talk.read(C1)
    talk.pass_time(9)
    talk.say(C1, m.Heartbeat())
    said = talk.pass_time(2)
    [(_, tasks)] = only(said, m.Tasks)
    assert tasks.lost[0].reason == "no heartbeat for 10 s"
    assert (W1, "end") in said


def test_a_supervisor_keeps_the_lease_of_its_child():
    talk = Talk(worker_timeout_ms=2_000)
    talk.join(W1)
    worker_id = talk.worker_ids[W1]
    talk.say(S1, m.SupervisorHello(1, 1))
    for _ in range(5):
        talk.pass_time(1.5)
        talk.say(S1, m.KeepAlive({worker_id: talk.key(W1)}))
    assert talk.call(m.GetCluster()) == m.ClusterReply(["host:1"])
    talk.say(S1, m.WorkerDied(worker_id, "it was killed", talk.key(W1)))
    assert talk.call(m.GetCluster()) == m.ClusterReply([])


def test_a_supervisor_is_welcomed_with_journal_and_heartbeat():
    talk = Talk(worker_timeout_ms=2_000)
    journal = talk.logic._ledger.journal_id
    assert talk.say(S1, m.SupervisorHello(1, 1)) == [
        (S1, m.SupervisorWelcome(1, journal, 200, 2000))
    ]


def test_a_death_is_reported_with_the_key_of_the_worker_only():
    talk = Talk()
    talk.join(W1)
    talk.join(W2)
    talk.say(S1, m.SupervisorHello(1, 1))
    mine, key = talk.worker_ids[W1], talk.key(W1)
    for worker_id, shown in ((99, key), (mine, b""), (mine, key[::-1]), (mine, talk.key(W2))):
        assert talk.say(S1, m.WorkerDied(worker_id, "it was killed", shown)) == []
    assert talk.call(m.GetCluster()) == m.ClusterReply(["host:1", "host:2"])


def test_a_lease_is_renewed_with_the_key_of_the_worker_only():
    talk = Talk(worker_timeout_ms=2_000)
    talk.join(W1)
    worker_id, key = talk.worker_ids[W1], talk.key(W1)
    talk.say(S1, m.SupervisorHello(1, 1))
    for _ in range(5):
        talk.pass_time(0.5)
        talk.say(S1, m.KeepAlive({worker_id: key[::-1], worker_id + 1: key}))
    assert talk.call(m.GetCluster()) == m.ClusterReply([])


def test_keys_are_recorded():
    talk = Talk()
    [(_, registered)] = only(talk.join(W1), m.WorkerWelcome)
    [(_, welcome)] = only(talk.read(C1), m.ClientWelcome)
    state = talk.logic.state
    assert state.workers[registered.worker_id].added.key == registered.key
    assert state.clients[welcome.client_id].key == welcome.key
    keys = {registered.key, welcome.key, state.tasks[talk.task(W1)].key}
    assert [len(key) for key in keys] == [KEY_BYTES] * 3


def test_a_supervisor_may_send_only_supervisor_messages():
    talk = Talk()
    talk.say(S1, m.SupervisorHello(1, 1))
    said = talk.say(S1, m.WorkerLeave())
    assert "not WorkerLeave" in _refusal(said).message
    assert said[-1] == (S1, "end")


def test_a_session_takes_one_hello_only():
    talk = Talk()
    talk.say(S1, m.SupervisorHello(1, 1))
    said = talk.say(S1, m.SupervisorHello(1, 1))
    assert "one hello only" in _refusal(said).message
    assert said[-1] == (S1, "end")


def test_epoch_is_finished_when_no_task_runs_and_one_ended():
    talk = Talk()
    talk.join(W1)
    talk.join(W2)
    talk.read(C1)
    assert only(talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True)), m.Tasks) == []
    [(_, tasks)] = only(talk.say(W2, m.WorkerLeave()), m.Tasks)
    assert tasks.computed


def test_resumed_session_repeats_messages_that_may_be_lost():
    talk = Talk()
    talk.join(W1)
    [(_, start)] = only(talk.read(C1), m.TaskStart)
    task, worker_id = talk.task(W1), talk.worker_ids[W1]
    talk.say(W1, m.SplitRequest(task, 0, 0, want=1))
    talk.logic.disconnected(W1, 0.0)
    journal = talk.logic._ledger.journal_id
    readers = {task: [7]}
    hello = m.WorkerHello(
        1,
        1,
        "host:1",
        {},
        VERSIONS,
        [],
        worker_id,
        journal,
        tasks=[99],
        readers=readers,
        key=talk.key(W1),
    )
    said = talk.say(W2, hello)
    assert [x for _, x in said][1:] == [
        m.TaskStop(99),
        start,
        m.ClientReleased(task, 7),
    ]
    assert talk.say(W2, m.SplitRequest(task, 0, 0, begin=[0]))[0] == (
        W2,
        m.SplitGrant(task, 0, 0, begun=[0]),
    )


def test_split_begun_by_another_task_is_refused():
    talk = Talk(IndexSplits(1))
    talk.join(W1)
    talk.join(W2)
    talk.read(C1)
    first, second = talk.task(W1), talk.task(W2)
    talk.say(W2, m.SplitRequest(second, 0, 0, want=1))
    talk.say(W2, m.SplitRequest(second, 0, 0, begin=[0]))
    assert talk.say(W1, m.SplitRequest(first, 0, 0, begin=[0], want=1)) == [
        (W1, m.SplitGrant(first, 0, 0, refused=[0])),
        (W1, m.SplitGrant(first, 0, 0, end=True)),
    ]


def test_new_worker_replaces_the_old_one_at_its_address():
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    hello = m.WorkerHello(1, 1, "host:1", {}, VERSIONS)
    talk.now += 3.0  # without a heartbeat, though its session is open
    said = talk.say(W2, hello)
    assert (W1, "end") in said
    assert only(said, m.Tasks)[0][1].lost[0].reason == "another process took its address"


def test_a_worker_that_missed_its_welcome_keeps_its_tasks():
    talk = Talk()
    talk.join(W1, instance="a", session=1)
    talk.read(C1)
    task, worker_id = talk.task(W1), talk.worker_ids[W1]
    said = talk.join(W2, instance="b")  # at another address
    hello = m.WorkerHello(1, 1, "host:1", {"tcp": "host:1"}, VERSIONS, instance="a", session=2)
    said = talk.say(3, hello)
    [(_, welcome)] = only(said, m.WorkerWelcome)
    assert welcome.worker_id == worker_id
    assert [start.task_id for _, start in only(said, m.TaskStart)] == [task]
    assert (W1, "end") in said


def test_an_older_session_of_a_worker_is_refused():
    """Its hello may have been on the way for longer than that of the next session."""
    talk = Talk()
    talk.join(W1, instance="a", session=2)
    talk.read(C1)
    hello = m.WorkerHello(1, 1, "host:1", {"tcp": "host:1"}, VERSIONS, instance="a", session=1)
    assert _refusal(talk.say(W2, hello)).code == "AlreadyExistsError"
    assert talk.logic.state.workers[talk.worker_ids[W1]].tasks


def test_worker_keeps_its_place_over_a_stall_of_the_dispatcher():
    """Its messages wait behind the hello of a worker that wants its place."""
    talk = Talk(worker_addresses=["host"])
    talk.join(W1)
    talk.now += 6.0
    hello = m.WorkerHello(1, 1, "host:2", {"tcp": "host:2"}, VERSIONS)
    assert _refusal(talk.say(W2, hello)).code == "FailedPreconditionError"
    talk.say(W1, m.Heartbeat())
    assert talk.call(m.GetCluster()) == m.ClusterReply(["host:1"])


def test_replaced_worker_does_not_get_its_address_back():
    talk = Talk()
    talk.join(W1)
    old = talk.worker_ids[W1]
    talk.now += 3.0
    talk.say(W2, m.WorkerHello(1, 1, "host:1", {}, VERSIONS))
    talk.now += 3.0
    journal = talk.logic._ledger.journal_id
    again = m.WorkerHello(1, 1, "host:1", {}, VERSIONS, worker_id=old, journal_id=journal)
    assert _refusal(talk.say(3, again)).code == "AlreadyExistsError"
    assert talk.call(m.GetCluster()) == m.ClusterReply(["host:1"])


def test_splits_are_listed_by_another_worker_after_a_death():
    talk = Talk(ListedSplits())
    talk.join(W1)
    talk.join(W2)
    [(peer, request)] = only(talk.read(C1), m.ListSplits)
    assert (peer, request.source) == (W1, 0)
    [(peer, request)] = only(talk.say(W1, m.WorkerLeave()), m.ListSplits)
    assert peer == W2
    said = talk.say(W2, page(request.listing_id, ["a", "b"]))
    [(_, start)] = only(said, m.TaskStart)
    assert start.mode == m.SplitTask(sources=[m.SplitSource(0, 2)])
    task = talk.task(W2)
    talk.say(W2, m.SplitRequest(task, 0, 0, want=1))
    [iteration] = talk.logic.state.iterations.values()
    assert list(iteration.values[0]) == ["a", "b"]


def test_failed_listing_fails_the_iteration_until_released():
    error = ErrorRecord("UserFunctionError", "no such folder")
    talk = Talk(ListedSplits())
    talk.join(W1)
    [(_, request)] = only(talk.read(C1), m.ListSplits)
    said = talk.say(W1, m.ListingFailed(request.listing_id, error))
    assert [peer for peer, _ in only(said, m.Refused)] == [C1]
    assert only(talk.read(C2), m.Refused)
    talk.say(C1, m.ClientClose())
    assert talk.logic.state.jobs == {}
    assert only(talk.read(13), m.ListSplits)


def test_closed_client_gives_back_through_the_dispatcher():
    talk = Talk()
    talk.join(W1)
    [(_, welcome)] = only(talk.read(C1), m.ClientWelcome)
    task = talk.task(W1)
    said = talk.say(C1, m.ClientClose({task: (3, 1)}))
    released = m.ClientReleased(task, welcome.client_id, (3, 1))
    assert said == [
        (W1, released),
        (W1, m.ReturnSplits(task)),
        (C1, m.ClientClosed()),
        (C1, "end"),
    ]


@pytest.mark.parametrize("ending", ["left", "delivered"])
@pytest.mark.parametrize(("age", "in_time"), [(4.9, False), (5.1, True), (math.inf, True)])
def test_a_copy_must_be_older_than_the_end_of_its_first_epoch(ending, age, in_time):
    talk = Talk()
    talk.join(W1)
    talk.read(C1, named=False, copied=m.CopyTime(math.inf))
    if ending == "left":
        talk.say(C1, m.ClientClose())
    else:  # by a client that was killed and has its lease
        talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True, delivered=True))
    talk.now = 5.0
    said = talk.read(C2, named=False, copied=m.CopyTime(age))
    assert ["before this copy" in x.error.message for _, x in only(said, m.Refused)] == [True] * (
        not in_time
    )
    warnings = [x.warning for _, x in only(said, m.ClientWelcome)]
    assert ["gets none" in warning for warning in warnings] == [True] * in_time
    assert len(talk.logic.state.clients) == (ending == "delivered") + in_time


@pytest.mark.parametrize(
    ("copied", "kind"),
    [
        (m.CopyTime(0.4, "host", 5.1), m.Refused),
        (m.CopyTime(0.6, "host", 4.9), m.ClientWelcome),
        (m.CopyTime(0.6, "another", 4.9), m.Refused),
    ],
)
def test_the_clock_of_the_same_host_decides_when_a_copy_was_made(copied, kind):
    talk = Talk()
    talk.logic = Dispatcher(talk.config, random.Random(1), 0.0, state=talk.logic.state, host="host")
    talk.join(W1)
    talk.read(C1, named=False)
    talk.now = 5.0
    talk.say(C1, m.ClientClose())
    talk.now = 6.0  # the hello was on its way for half a second
    assert only(talk.read(C2, named=False, copied=copied), kind)


@pytest.mark.parametrize(("age", "kind"), [(0.5, m.Refused), (3.0, m.ClientWelcome)])
def test_an_epoch_of_an_earlier_dispatcher_ended_before_the_restart(age, kind):
    talk = Talk()
    talk.join(W1)
    talk.read(C1, named=False)
    talk.say(C1, m.ClientClose())
    talk.now = 5.0
    talk.logic = Dispatcher(talk.config, random.Random(1), 5.0, state=talk.logic.state)
    talk.now = 6.0
    assert only(talk.read(C2, named=False, copied=m.CopyTime(age)), kind)


def test_client_without_a_session_gives_back_by_a_call():
    talk = Talk()
    talk.join(W1)
    [(_, welcome)] = only(talk.read(C1), m.ClientWelcome)
    task = talk.task(W1)
    talk.logic.disconnected(C1, talk.now)
    client_id, journal = welcome.client_id, welcome.journal_id
    wrong = talk.call(m.CloseClient(client_id, journal, welcome.key[::-1]))
    assert isinstance(wrong, m.Failed)
    assert wrong.error.code == "PermissionDeniedError"
    assert talk.call(m.CloseClient(client_id, "other", welcome.key)) == m.ClientClosed()
    assert talk.logic.state.clients
    farewell = m.CloseClient(client_id, journal, welcome.key, m.ClientClose({task: (3, 1)}))
    reply, actions = talk.logic.call(farewell, talk.now)
    assert reply == m.ClientClosed()
    assert Send(W1, m.ClientReleased(task, client_id, (3, 1))) in actions
    assert not talk.logic.state.clients
    assert talk.call(farewell) == m.ClientClosed()


def test_lease_shorter_than_the_tick_interval_expires():
    talk = Talk(worker_timeout_ms=200)
    talk.join(W1)
    talk.logic.disconnected(W1, talk.now)
    talk.pass_time(1.0)
    assert talk.logic.state.workers == {}


def test_a_worker_in_session_is_not_lost_within_a_second():
    talk = Talk(worker_timeout_ms=200)
    talk.join(W1)
    talk.pass_time(0.75)
    assert len(talk.logic.state.workers) == 1
    talk.pass_time(0.5)
    assert talk.logic.state.workers == {}


def test_silent_client_is_released_and_notified():
    talk = Talk(worker_timeout_ms=1_000_000, client_timeout_ms=4_000)
    talk.join(W1)
    [(_, welcome)] = only(talk.read(C1), m.ClientWelcome)
    said = talk.pass_time(5)
    assert (W1, m.ClientReleased(talk.task(W1), welcome.client_id)) in said
    assert "Unknown iteration client id" in _refusal(said).message
    assert (C1, "end") in said


def test_tasks_of_a_finished_iteration_without_clients_stop():
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    task = talk.task(W1)
    talk.say(W1, m.TaskProgress(task, exhausted=True, delivered=True))
    assert (W1, m.TaskStop(task)) in talk.say(C1, m.ClientClose())
    assert only(talk.read(C2), m.Tasks) == [(C2, m.Tasks(computed=True, shared=True))]
    assert (W1, m.TaskStop(task)) not in talk.say(C2, m.ClientClose())


def test_task_that_ends_without_clients_is_stopped():
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    task = talk.task(W1)
    talk.say(C1, m.ClientClose())
    progress = m.TaskProgress(task, exhausted=True, delivered=True)
    assert talk.say(W1, progress) == [(W1, m.TaskStop(task))]


def test_what_a_closed_client_gave_back_is_read_by_the_next():
    """Computed is not delivered: the worker keeps what no client has consumed."""
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    task = talk.task(W1)
    talk.say(W1, m.TaskProgress(task, exhausted=True))
    assert (W1, m.TaskStop(task)) not in talk.say(C1, m.ClientClose({task: (3, 1)}))
    [(_, tasks)] = only(talk.read(C2), m.Tasks)
    assert [info.task_id for info in tasks.added] == [task]
    assert tasks.computed


def test_an_anonymous_job_stops_with_its_last_client():
    talk = Talk()
    talk.join(W1)
    talk.read(C1, named=False)
    talk.read(C2, named=False)
    task = talk.task(W1)
    assert (W1, m.TaskStop(task)) not in talk.say(C1, m.ClientClose())
    assert (W1, m.TaskStop(task)) in talk.say(C2, m.ClientClose())


def test_tasks_of_a_dynamic_job_that_nobody_reads_stay():
    talk = Talk(worker_timeout_ms=10**9, job_gc_check_interval_ms=1000, job_gc_timeout_ms=3000)
    talk.join(W1)
    talk.read(C1)
    task = talk.task(W1)
    talk.say(W1, m.SplitRequest(task, 0, 0, want=1))
    talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0]))
    talk.say(C1, m.ClientClose())
    assert talk.pass_time(4.5) == []
    said = talk.read(C2)
    assert only(said, m.TaskStart) == []
    [(_, tasks)] = only(said, m.Tasks)
    assert [info.task_id for info in tasks.added] == [task]
    assert tasks.lost == []


def test_off_starts_a_new_task_for_one_that_was_lost_unread():
    talk = Talk()
    talk.join(W1)
    talk.read(C1, ShardingPolicy.OFF)
    talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True))
    [(_, lost)] = only(talk.say(W1, m.WorkerLeave()), m.Tasks)
    assert not lost.computed
    [(_, added)] = only(talk.join(W2), m.Tasks)
    assert [info.worker for info in added.added] == ["host:2"]


def test_off_starts_tasks_until_one_is_consumed():
    talk = Talk()
    talk.join(W1)
    talk.read(C1, ShardingPolicy.OFF)
    [(_, computed)] = only(talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True)), m.Tasks)
    assert computed.computed
    [(_, added)] = only(talk.join(W2), m.Tasks)
    assert [info.worker for info in added.added] == ["host:2"]
    assert not added.computed
    talk.say(W2, m.TaskProgress(talk.task(W2), exhausted=True))
    talk.say(W1, m.TaskProgress(talk.task(W1), exhausted=True, delivered=True))
    assert only(talk.join(3), m.TaskStart) == []


def test_off_ends_with_the_loss_of_a_task_a_client_has_read():
    talk = Talk()
    talk.join(W1)
    talk.read(C1, ShardingPolicy.OFF)
    task = talk.task(W1)
    talk.say(W1, m.TaskProgress(task, exhausted=True))
    talk.say(C1, m.TaskRead(task))
    [(_, tasks)] = only(talk.say(W1, m.WorkerLeave()), m.Tasks)
    assert tasks.computed


def test_elements_of_a_lost_client_are_reported_to_the_others():
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    task = talk.task(W1)
    [(peer, tasks)] = only(talk.say(W1, m.TaskProgress(task, dropped=3)), m.Tasks)
    assert (peer, tasks.dropped) == (C1, [m.ElementsDropped(task, "host:1", 3)])
    assert only(talk.say(W1, m.TaskProgress(task, dropped=3)), m.Tasks) == []


def test_a_worker_learns_later_what_a_closed_client_had_consumed():
    talk = Talk()
    talk.join(W1)
    [(_, welcome)] = only(talk.read(C1), m.ClientWelcome)
    talk.read(C2)
    task, journal = talk.task(W1), talk.logic._ledger.journal_id
    talk.logic.disconnected(W1, talk.now)
    talk.say(C1, m.ClientClose({task: (3, 1)}))
    worker_id = talk.worker_ids[W1]
    fields = {"worker_id": worker_id, "journal_id": journal, "tasks": [task]}
    fields["key"] = talk.key(W1)
    said = talk.join(W1, readers={task: [welcome.client_id]}, **fields)
    assert (W1, m.ClientReleased(task, welcome.client_id, (3, 1))) in said


def _with_function(digest: str, line: int = 3, tree: bytes = TREE) -> m.RegisterDataset:
    functions = [m.Function(f"train.py:{line}", digest)]
    return _registration(tree, digest=f"tree with {digest}", functions=functions)


def _read_named(talk: Talk, peer: int, registration: m.RegisterDataset):
    parameters = m.JobParameters(ShardingPolicy.DYNAMIC)
    hello = m.ClientHello(1, 1, "", "job", parameters, (0,), named=True, registration=registration)
    return talk.say(peer, hello)


def test_a_job_that_exists_needs_no_other_tree():
    talk = Talk()
    talk.join(W1)
    _read_named(talk, C1, _with_function("one"))
    said = _read_named(talk, C2, _with_function("other", tree=b""))
    [(_, welcome)] = only(said, m.ClientWelcome)
    assert "created with another function at train.py:3" in welcome.warning
    assert list(talk.logic.state.datasets) == ["data", "tree with one"]


def test_a_moved_line_is_no_other_function():
    talk = Talk()
    talk.join(W1)
    _read_named(talk, C1, _with_function("one"))
    [(_, welcome)] = only(_read_named(talk, C2, _with_function("one", line=9)), m.ClientWelcome)
    assert welcome.warning == ""


@pytest.mark.parametrize(
    ("idle", "digest", "anew"), [(12, "new", True), (8, "new", False), (12, "other", False)]
)
def test_a_job_left_by_its_clients_starts_anew_for_other_functions(idle, digest, anew):
    talk = Talk(worker_timeout_ms=10**9)
    talk.join(W1)
    _read_named(talk, C1, _with_function("one"))
    _read_named(talk, C2, _with_function("other", tree=b""))
    before = list(talk.logic.state.iterations)
    talk.say(C1, m.ClientClose())
    talk.say(C2, m.ClientClose())
    talk.pass_time(idle)
    said = _read_named(talk, 13, _with_function(digest))
    [(_, welcome)] = only(said, m.ClientWelcome)
    assert (list(talk.logic.state.iterations) != before) == anew
    if anew:
        assert welcome.warning == (
            "job 'job' starts anew: it had no client for 12 s, and this process has another "
            "function at train.py:3"
        )
    else:
        assert "job 'job' was created with another function at train.py:3" in welcome.warning


def test_a_job_with_a_client_never_starts_anew():
    talk = Talk(worker_timeout_ms=10**9, client_timeout_ms=10**9)
    talk.join(W1)
    _read_named(talk, C1, _with_function("one"))
    _read_named(talk, C2, _with_function("one"))
    talk.say(C2, m.ClientClose())
    talk.pass_time(12)
    [(_, welcome)] = only(_read_named(talk, 13, _with_function("new")), m.ClientWelcome)
    assert "was created with another function" in welcome.warning


def test_iteration_without_clients_is_collected():
    talk = Talk(worker_timeout_ms=10**9, job_gc_check_interval_ms=1000, job_gc_timeout_ms=3000)
    talk.join(W1)
    talk.read(C1, ShardingPolicy.OFF)
    task = talk.task(W1)
    talk.say(C1, m.ClientClose())
    assert talk.pass_time(2.5) == []
    assert talk.pass_time(2) == [(W1, m.TaskStop(task))]
    assert (talk.logic.state.jobs, talk.logic.state.tasks) == ({}, {})


def test_named_dynamic_job_is_collected_only_if_configured():
    config = {"job_gc_check_interval_ms": 1000, "job_gc_timeout_ms": 3000}
    for gc, kept in [(False, ["job"]), (True, [])]:
        talk = Talk(gc_dynamic_sharding_jobs=gc, **config)
        talk.read(C1, named=True)
        talk.say(C1, m.ClientClose())
        talk.pass_time(5)
        assert list(talk.logic.state.jobs) == kept


def test_clients_of_one_job_must_agree():
    talk = Talk()
    talk.read(C1, ShardingPolicy.DYNAMIC)
    error = _refusal(talk.read(C2, ShardingPolicy.OFF))
    assert error.code == "InvalidArgumentError"
    assert "Existing processing mode: <DYNAMIC>; got <OFF>" in error.message


def test_unsplittable_source_is_refused_by_name():
    talk = Talk(Unsplittable("it is a generator"))
    error = _refusal(talk.read(C1))
    assert (error.code, "train.py:1" in error.message) == ("UnimplementedError", True)


def test_client_of_another_dispatcher_gets_an_error():
    talk = Talk()
    error = _refusal(talk.read(C1, client_id=5, journal_id="another"))
    assert error.code == "UnavailableError"


@pytest.mark.parametrize(
    "message",
    [
        m.Heartbeat(),
        m.WorkerHello(98, 99, "host:1", {}, VERSIONS),
        m.ClientHello(1, 1, "unknown", "job", m.JobParameters(ShardingPolicy.OFF), (0,)),
    ],
)
def test_session_with_an_invalid_hello_is_refused(message):
    said = Talk().say(C1, message)
    assert [type(x) for _, x in said] == [m.Refused, str]


def test_invalid_message_ends_only_the_workers_session():
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    task = talk.task(W1)
    said = talk.say(W1, m.SplitRequest(task, 17, 0, want=1))
    assert [type(x) for _, x in said] == [m.Refused, str]
    assert talk.say(C1, m.SplitRequest(task, 0, 0, want=1)) == []
    assert EndSession(C1) not in talk.logic.tick(0.0)
    assert talk.logic.state.workers


def test_infinite_repeat_keeps_no_splits_of_past_epochs():
    talk = Talk(IndexSplits(1))
    talk.join(W1)
    talk.read(C1)
    task = talk.task(W1)
    for source_epoch in range(5):
        talk.say(W1, m.SplitRequest(task, 0, source_epoch, want=1))
        talk.say(W1, m.SplitRequest(task, 0, source_epoch, begin=[0], want=1))
        talk.say(W1, m.SplitRequest(task, 0, source_epoch, done=True))
    [iteration] = talk.logic.state.iterations.values()
    splits = splits_of(iteration.mode_state)
    assert splits.trackers == {}
    assert splits.begun_by(task) == 5


def test_a_late_task_gets_the_end_of_past_epochs():
    talk = Talk(IndexSplits(1))
    talk.join(W1)
    talk.read(C1)
    task = talk.task(W1)
    for source_epoch in (1, 0):
        talk.say(W1, m.SplitRequest(task, 0, source_epoch, want=1))
        talk.say(W1, m.SplitRequest(task, 0, source_epoch, begin=[0], want=1))
        talk.say(W1, m.SplitRequest(task, 0, source_epoch, done=True))
    talk.join(W2)
    late = talk.task(W2)
    for source_epoch in (0, 1):
        said = talk.say(W2, m.SplitRequest(late, 0, source_epoch, begin=[0], want=1))
        assert said == [
            (W2, m.SplitGrant(late, 0, source_epoch, refused=[0])),
            (W2, m.SplitGrant(late, 0, source_epoch, end=True)),
        ]
        talk.say(W2, m.SplitRequest(late, 0, source_epoch, done=True))
    said = talk.say(W2, m.SplitRequest(late, 0, 2, want=1))
    assert said == [(W2, m.SplitGrant(late, 0, 2, splits=[(0, (0, 1))]))]


def test_a_finished_iteration_drops_its_splits_while_clients_are_connected():
    talk = Talk(ListedSplits())
    talk.join(W1)
    [(_, listing)] = only(talk.read(C1), m.ListSplits)
    talk.say(W1, page(listing.listing_id, ["a file"]))
    task = talk.task(W1)
    talk.say(W1, m.SplitRequest(task, 0, 0, want=1))
    talk.say(W1, m.SplitRequest(task, 0, 0, begin=[0], want=1))
    [iteration] = talk.logic.state.iterations.values()
    assert list(iteration.values[0]) == ["a file"]
    talk.say(W1, m.TaskProgress(task, exhausted=True, delivered=True))
    assert (iteration.finished, iteration.stopped) == (True, False)
    splits = splits_of(iteration.mode_state)
    assert (iteration.values, splits.trackers, splits.splits_read) == ({}, {}, {})


def test_clients_that_have_left_are_remembered_up_to_a_limit(monkeypatch):
    monkeypatch.setattr("stoker.service.dispatcher.entities.entities.REMEMBERED_CLIENTS", 3)
    monkeypatch.setattr("stoker.service.dispatcher.entities.entities.REMEMBERED_CODES", 3)
    talk = Talk(worker_timeout_ms=10**9)
    talk.join(W1)
    for number in range(10):
        said = _read_named(talk, 100 + number, _with_function(str(number)))
        [(_, welcome)] = only(said, m.ClientWelcome)
        talk.say(100 + number, m.ClientClose({talk.task(W1): (1, 0)}))
    [iteration] = talk.logic.state.iterations.values()
    assert iteration.shared
    assert len(iteration.left) == len(iteration.job.codes) == 3
    assert welcome.client_id in iteration.left
