"""The client's logic by values: messages in, actions and elements out."""

import random
from typing import get_args

import msgspec
import pytest

from stoker.errors import (
    CancelledError,
    ErrorRecord,
    NotFoundError,
    StokerError,
    UnavailableError,
)
from stoker.service import messages as m
from stoker.service.api.read_options import ReadOptions
from stoker.service.client import actions as a
from stoker.service.client import logic as c
from stoker.service.client.flow.credit import BUFFER_BYTES, WORKERS
from stoker.service.client.flow.flow_control import CONNECTION_BYTES
from stoker.service.client.flow.pace import FIRST, GROWTH
from stoker.service.client.give_up_policy import DISPATCHER_TIMEOUT
from stoker.service.client.iteration_end import END_SECONDS
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.loading import Loading
from stoker.service.rules.processing_modes import ShardingPolicy
from stoker.service.task_evidence import TaskEvidence, encode
from stoker.wire import frames as f

EVEN = BUFFER_BYTES // (4 * WORKERS)
HELLO = m.ClientHello(1, 1, "dataset", "job", m.JobParameters(ShardingPolicy.DYNAMIC), (0,))
WELCOME = m.ClientWelcome(1, 40, 30, "journal", 500)
TASK = m.TaskInfo(20, "here:1", {"tcp": "here:1"}, reader_id=40)
OTHER = m.TaskInfo(21, "there:1", {"tcp": "there:1"}, reader_id=40)
LOST = m.TaskLost(20, "here:1", "it died", splits_begun=2)


def _client(max_outstanding_requests: int | None = None, hello: m.ClientHello = HELLO) -> c.Client:
    options = ReadOptions(
        processing_mode=ShardingPolicy.DYNAMIC,
        dispatcher_address="service:1",
        max_outstanding_requests=max_outstanding_requests,
        connect_timeout=60.0,
    )
    return c.Client(hello, options, random.Random(0), 0.0)


def _reading(max_outstanding_requests: int | None = None, *tasks: m.TaskInfo) -> c.Client:
    """Return a client that reads task 20 (or `tasks`) on connection 1 (and following)."""
    client = _client(max_outstanding_requests)
    client.session_opened(0.0)
    client.session_message(WELCOME, 0.0)
    client.session_message(m.Tasks(added=list(tasks or (TASK,))), 0.0)
    for connection in range(1, 1 + len(tasks or (TASK,))):
        client.connected(connection)
        client.worker_message(connection, f.Welcome(1, "here:1"), 0.0)
    return client


def _frame(client: c.Client, number: int, elements: list[object], connection: int = 1) -> None:
    client.worker_message(connection, f.Frame(number, elements), 0.0)


def _taken(client: c.Client) -> object:
    taken, _ = client.take(0.0, 0.0)
    return taken.elements if isinstance(taken, ReceivedChunk) else taken


def _end_confirmed(client: c.Client, *readings: tuple[int, int]) -> bool:
    """Return whether each (connection, frames) must confirm the end before it is returned."""
    taken, actions = client.take(0.0, 0.0)
    asked = {
        action.connection
        for action in actions
        if isinstance(action, a.ToWorker) and isinstance(action.message, f.Credit)
    }
    for connection, frames in readings:
        client.worker_message(connection, f.TaskEnd(frames), 0.0)
    return (
        taken is None
        and asked == {connection for connection, _ in readings}
        and isinstance(_taken(client), c.EndOfIteration)
    )


def _finish(client: c.Client) -> None:
    client.session_message(m.Tasks(computed=True), 0.0)


def test_client_opens_its_iteration_and_connects_to_tasks():
    client = _client()
    assert client.session_opened(0.0) == [a.ToDispatcher(HELLO)]
    assert client.session_message(WELCOME, 0.0) == [a.SetHeartbeat(500)]
    assert client.session_message(m.Tasks(added=[TASK]), 0.0) == [a.Connect(1, TASK)]
    assert client.connected(1) == [a.ToWorker(1, f.Hello(1, 1, 40, 20, 0, attempt=1, reports=True))]
    assert client.worker_message(1, f.Welcome(1, "here:1"), 0.0) == [
        a.ToWorker(1, f.Credit(0, FIRST, EVEN))
    ]


def test_the_age_of_a_copy_is_that_at_the_hello():
    client = _client(hello=msgspec.structs.replace(HELLO, copied=m.CopyTime(2.0)))
    client.session_lost(1.0, "Connection refused")
    [said] = client.session_opened(3.0)
    assert isinstance(said, a.ToDispatcher)
    assert isinstance(said.message, m.ClientHello)
    assert said.message.copied == m.CopyTime(5.0)
    client.session_message(WELCOME, 4.0)
    [resumed] = client.session_opened(6.0)
    assert isinstance(resumed, a.ToDispatcher)
    assert isinstance(resumed.message, m.ClientHello)
    assert resumed.message.copied is None


def test_dataset_is_sent_only_on_request():
    registration = m.RegisterDataset("digest", b"tree")
    hello = msgspec.structs.replace(HELLO, dataset_id="", registration=registration)
    brief = msgspec.structs.replace(hello, registration=m.RegisterDataset("digest"))
    client = _client(hello=hello)
    assert client.session_opened(0.0) == [a.ToDispatcher(brief)]
    assert client.session_message(m.DatasetUnknown(), 0.0) == [a.ToDispatcher(hello)]
    client.session_message(WELCOME, 0.0)
    client.session_lost(1.0)
    [again] = client.session_opened(0.0)
    assert isinstance(again, a.ToDispatcher)
    assert isinstance(again.message, m.ClientHello)
    assert (again.message.client_id, again.message.registration) == (40, None)


def test_compression_of_the_first_welcome_is_sent_to_workers():
    client = _client()
    client.session_message(msgspec.structs.replace(WELCOME, compression="ZSTD"), 0.0)
    client.session_message(WELCOME, 0.0)  # a resumed session does not repeat it
    client.session_message(m.Tasks(added=[TASK]), 0.0)
    hello = f.Hello(1, 1, 40, 20, 0, attempt=1, compression="ZSTD", reports=True)
    assert client.connected(1) == [a.ToWorker(1, hello)]


def test_frames_are_yielded_in_order_until_the_end():
    client = _reading()
    _frame(client, 0, ["a", "b"])
    _frame(client, 1, ["c"])
    client.worker_message(1, f.TaskEnd(2), 0.0)
    assert [_taken(client), _taken(client), _taken(client)] == [["a", "b"], ["c"], None]
    _finish(client)
    assert _end_confirmed(client, (1, 2))
    assert client.consumption.elements == 3


def test_elements_given_back_before_the_end_are_read():
    client = _reading()
    client.worker_message(1, f.TaskEnd(0), 0.0)
    _finish(client)
    assert client.take(0.0, 0.0) == (None, [a.ToWorker(1, f.Credit(0, FIRST, EVEN))])
    _frame(client, 0, ["late"])
    assert _taken(client) == ["late"]
    client.worker_message(1, f.TaskEnd(1), 0.0)
    assert _end_confirmed(client, (1, 1))


def test_error_is_yielded_in_its_position():
    client = _reading()
    error = ErrorRecord("UserFunctionError", "no")
    client.worker_message(1, f.Frame(0, [], error), 0.0)
    _frame(client, 1, ["a"])
    assert client.take(0.0, 0.0)[0] == ReceivedChunk([], 0, error, task_id=20, number=0)
    assert _taken(client) == ["a"]


def test_end_needs_the_dispatcher_and_all_workers():
    client = _reading(None, TASK, OTHER)
    client.worker_message(1, f.TaskEnd(0), 0.0)
    assert _taken(client) is None
    _finish(client)
    assert _taken(client) is None
    client.worker_message(2, f.TaskEnd(0), 0.0)
    assert _end_confirmed(client, (1, 0), (2, 0))


def test_elements_given_back_after_a_tasks_end_are_read():
    client = _reading(None, TASK, OTHER)
    client.worker_message(1, f.TaskEnd(0), 0.0)
    _finish(client)
    _frame(client, 0, ["late"])
    assert _taken(client) == ["late"]
    client.worker_message(2, f.TaskEnd(0), 0.0)
    assert _taken(client) is None
    client.worker_message(1, f.TaskEnd(1), 0.0)
    assert _end_confirmed(client, (1, 1), (2, 0))


def test_reconnection_resumes_at_the_first_missing_frame():
    client = _reading()
    _frame(client, 0, ["a"])
    client.connection_lost(1, "reset", 10.0)
    assert client.tick(10.001) == []
    assert client.tick(10.1) == [a.Connect(2, TASK)]
    assert client.connected(2) == [a.ToWorker(2, f.Hello(1, 1, 40, 20, 1, attempt=2, reports=True))]
    _frame(client, 1, ["stale"], connection=1)
    assert _taken(client) == ["a"]
    assert _taken(client) is None


def test_reconnection_delays_grow_with_jitter():
    client = _reading()
    pauses = []
    now = 0.0
    for connection in range(1, 9):
        client.connection_lost(connection, "refused", now)
        began = now
        while not any(isinstance(action, a.Connect) for action in client.tick(now)):
            now += 0.01
        pauses.append(now - began)
    assert pauses[0] < 0.07
    assert 1.0 <= pauses[-1] <= 2.1


def _warnings(client: c.Client, now: float) -> list[str]:
    return [action.text for action in client.tick(now) if isinstance(action, a.Warn)]


def test_worker_that_is_not_reached_is_named_once_while_others_deliver():
    client = _reading(None, TASK)
    client.session_message(m.Tasks(added=[OTHER]), 10.0)
    client.connection_lost(2, "cannot connect to there:1: no answer", 14.9)
    _frame(client, 0, ["a"])
    assert _warnings(client, 14.9) == []
    [text] = _warnings(client, 15.0)
    assert "worker there:1 has not been reached from here for 5 s: cannot connect" in text
    assert "(`worker_address`)" in text
    assert _warnings(client, 60.0) == []


def test_another_outage_of_a_worker_is_named_again():
    client = _reading()
    client.connection_lost(1, "reset", 10.0)
    client.tick(10.1)
    assert _warnings(client, 15.0) == []
    [first] = _warnings(client, 15.2)
    assert "or lost when the dispatcher removes it" in first
    client.connected(2)
    client.worker_message(2, f.Welcome(1, "here:1"), 16.0)
    client.connection_lost(2, "reset", 20.0)
    client.tick(20.1)
    assert len(_warnings(client, 26.0)) == 1


def test_worker_on_loopback_elsewhere_is_told_to_listen_on_all_interfaces():
    client = _reading(None, TASK)
    client.session_message(m.Tasks(added=[m.TaskInfo(21, "localhost:1", {"tcp": "[::1]:1"})]), 0.0)
    client.connection_lost(2, "refused", 1.0)
    [text] = _warnings(client, 5.0)
    assert "--host 0.0.0.0 --insecure" in text


def test_missing_frame_breaks_the_connection():
    client = _reading()
    actions = client.worker_message(1, f.Frame(1, ["b"]), 0.0)
    assert actions == [a.Disconnect(1)]
    assert _taken(client) is None


def test_unknown_task_is_retried_until_reported_lost():
    client = _reading()
    bye = f.Bye(ErrorRecord("NotFoundError", "task 20 does not run on this worker"))
    assert client.worker_message(1, bye, 0.0) == [a.Disconnect(1)]
    assert client.tick(1.0) == [a.Connect(2, TASK)]
    client.session_message(m.Tasks(lost=[LOST], computed=True), 1.0)
    assert client.tick(9.0) == []
    assert isinstance(_taken(client), c.EndOfIteration)


def test_permanent_refusal_of_a_worker_is_an_error():
    client = _reading()
    client.worker_message(1, f.Bye(ErrorRecord("FailedPreconditionError", "no protocol")), 0.0)
    assert str(_taken(client)) == "no protocol"


def test_lost_task_is_counted_and_received_frames_are_kept():
    client = _reading()
    _frame(client, 0, ["a"])
    _frame(client, 1, ["b"])
    actions = client.session_message(m.Tasks(lost=[LOST]), 0.0)
    assert actions[:2] == [a.ToWorker(1, f.GiveBack(2, 0)), a.Disconnect(1, farewell=True)]
    assert isinstance(actions[2], a.Warn)
    assert "2 splits" in actions[2].text
    assert [_taken(client), _taken(client)] == [["a"], ["b"]]
    assert client.losses.totals == {"tasks_lost": 1, "splits_lost": 2, "elements_lost": 0}
    assert client.session_message(m.Tasks(lost=[LOST]), 0.0) == []


def test_a_shard_that_is_read_again_is_logged_once():
    client = _reading()
    lost = m.TaskLost(20, "here:1", "it died", elements=0, read_again="shard 2 of 5")
    text = (
        "worker here:1 was lost: it died. Shard 2 of 5 is read again from its beginning: its "
        "elements that were read come twice"
    )
    assert a.Warn(text) in client.session_message(m.Tasks(lost=[lost]), 0.0)
    assert client.losses.totals == {"tasks_lost": 1, "splits_lost": 0, "elements_lost": 0}


def test_a_read_names_the_workers_that_it_waits_for():
    client = _reading()
    absent = "the worker of shard 2 of 5 at host-c, which has not registered"
    client.session_message(m.Tasks(absent=absent), 0.0)
    assert client.waiting_for() == f"worker here:1, {absent}"
    client.session_message(m.Tasks(), 0.0)
    assert client.waiting_for() == "worker here:1"


def test_worker_lost_after_its_end_loses_nothing():
    client = _reading()
    client.worker_message(1, f.TaskEnd(0), 0.0)
    client.session_message(m.Tasks(lost=[LOST]), 0.0)
    assert not any(client.losses.totals.values())


def test_close_gives_back_through_worker_and_dispatcher():
    client = _reading(None, TASK, OTHER)
    _frame(client, 0, ["a"])
    _frame(client, 1, ["b", "c", "d"])
    _frame(client, 2, ["e"])
    _taken(client)
    _taken(client)
    assert client.close(consumed=2) == [
        a.ToWorker(1, f.GiveBack(1, 2)),
        a.Disconnect(1, farewell=True),
        a.ToWorker(2, f.GiveBack(0, 0)),
        a.Disconnect(2, farewell=True),
        a.ToDispatcher(m.ClientClose({20: (1, 2), 21: (0, 0)})),
    ]
    assert client.consumption.elements == 3
    assert client.close(consumed=2) == []
    assert client.session_opened(0.0) == []


def test_farewell_has_what_was_given_back():
    client = _reading()
    _frame(client, 0, ["a", "b"])
    _taken(client)
    client.session_lost(1.0)
    client.close(consumed=1)
    assert client.farewell(2.0) == m.CloseClient(40, "journal", b"", m.ClientClose({20: (0, 1)}))


def test_no_farewell_to_a_dispatcher_that_cannot_answer():
    unknown, stopped, gone = _client(), _reading(), _reading()
    stopped.session_message(m.DispatcherStopped(), 0.0)
    gone.session_lost(1.0)
    for client in (unknown, stopped, gone):
        client.close(0)
    assert gone.farewell(1.0 + DISPATCHER_TIMEOUT - 0.1) is not None
    assert gone.farewell(1.0 + DISPATCHER_TIMEOUT) is None
    assert unknown.farewell(0.0) is None
    assert stopped.farewell(0.0) is None


def test_yielded_error_is_not_given_back():
    client = _reading()
    client.worker_message(1, f.Frame(0, [], ErrorRecord("UserFunctionError", "no")), 0.0)
    client.take(0.0, 0.0)
    assert client.close(consumed=0)[0] == a.ToWorker(1, f.GiveBack(0, 1))


def test_quarter_of_the_window_is_reported_with_a_message():
    client = _reading()
    for number in range(3):
        _frame(client, number, [number])
    client.take(0.0, 0.0)
    assert client.take(0.0, 0.0)[1] == []
    window = FIRST + GROWTH
    assert client.worker_message(1, f.Frame(3, [3]), 0.0) == [
        a.ToWorker(1, f.Credit(1, 1 + window, CONNECTION_BYTES))
    ]


def test_half_of_the_window_is_reported_immediately():
    client = _reading()
    for number in range(4):
        _frame(client, number, [number])
    assert client.take(0.0, 0.0)[1] == []
    assert client.take(0.0, 0.0)[1] == []
    window = FIRST + 2 * GROWTH
    assert client.take(0.0, 0.0)[1] == [a.ToWorker(1, f.Credit(2, 2 + window, CONNECTION_BYTES))]


def test_half_of_the_bytes_is_reported_immediately():
    client = _reading()
    client.worker_message(1, f.Frame(0, ["a"], nbytes=1), 0.0)
    client.take(0.0, 0.0)
    client.worker_message(1, f.Frame(1, ["b"], nbytes=CONNECTION_BYTES), 0.0)
    assert client.take(0.0, 0.0)[1] == []
    [said] = client.take(0.0, 0.0)[1]
    assert isinstance(said, a.ToWorker)
    assert isinstance(said.message, f.Credit)
    assert said.message.consumed == 2


def test_smaller_consumption_is_reported_by_the_tick():
    client = _reading()
    _frame(client, 0, list(range(40)))
    client.take(0.0, 0.0)
    client.take(0.0, 0.0)
    _frame(client, 1, ["a"])
    client.take(0.0, 0.0)
    assert client.take(0.0, 0.0) == (None, [])
    [said] = client.tick(0.1)
    assert isinstance(said, a.ToWorker)
    assert isinstance(said.message, f.Credit)
    assert said.message.consumed == 2
    assert client.tick(0.2) == []


def test_last_elements_of_a_task_are_reported_while_others_are_read():
    client = _reading(None, TASK, OTHER)
    _frame(client, 0, list(range(40)))
    _frame(client, 1, ["a"])
    client.worker_message(1, f.TaskEnd(2), 0.0)
    for number in range(3):
        _frame(client, number, ["x"], connection=2)
    assert [_taken(client) for _ in range(4)] == [list(range(40)), ["a"], ["x"], ["x"]]
    [said] = [said for said in client.tick(0.1) if isinstance(said, a.ToWorker)]
    assert said.connection == 1
    assert isinstance(said.message, f.Credit)
    assert said.message.consumed == 2
    assert client.tick(0.2) == []


def test_limited_client_grants_credit_only_for_ready_elements():
    client = _reading(1, TASK, OTHER)
    assert client.worker_message(1, f.Ready(5), 0.0) == [a.ToWorker(1, f.Credit(0, 1, EVEN))]
    assert client.worker_message(2, f.Ready(5), 0.0) == []
    _frame(client, 0, ["a"])
    assert client.consumption.outstanding == 1
    client.take(0.0, 0.0)
    assert client.take(0.0, 0.0)[1] == [
        a.ToWorker(2, f.Credit(0, 1, EVEN)),
        a.ToWorker(1, f.Credit(1, 1, CONNECTION_BYTES)),
    ]


def test_dead_worker_does_not_hold_the_only_credit():
    client = _reading(1, TASK, OTHER)
    client.worker_message(1, f.Ready(5), 0.0)
    client.worker_message(2, f.Ready(5), 0.0)
    assert client.connection_lost(1, "reset", 0.0) == [a.ToWorker(2, f.Credit(0, 1, EVEN))]


def test_session_is_resumed_with_the_same_id():
    client = _reading()
    client.session_lost(1.0)
    [said] = client.session_opened(0.0)
    assert isinstance(said, a.ToDispatcher)
    assert isinstance(said.message, m.ClientHello)
    assert (said.message.client_id, said.message.journal_id) == (40, "journal")


def test_refusal_is_raised_after_received_elements():
    client = _reading()
    _frame(client, 0, ["a"])
    client.session_message(m.Refused(ErrorRecord("NotFoundError", "gone")), 0.0)
    assert _taken(client) == ["a"]
    assert isinstance(_taken(client), NotFoundError)
    assert client.session_opened(0.0) == []


def test_client_waits_for_a_dispatcher_until_connect_timeout():
    client = _client()
    client.tick(59.0)
    assert _taken(client) is None
    client.tick(60.0)
    error = _taken(client)
    assert isinstance(error, UnavailableError)
    assert "service:1" in str(error)


def test_without_dispatcher_and_workers_it_gives_up():
    client = _reading()
    client.session_lost(0.0)
    client.tick(15.0)
    assert _taken(client) is None
    client.connection_lost(1, "reset", 15.0)
    client.tick(15.01)
    assert isinstance(_taken(client), UnavailableError)


def test_without_dispatcher_and_splits_it_gives_up():
    client = _reading()
    client.session_lost(0.0)
    _frame(client, 0, ["a"])
    client.tick(61.0)
    assert _taken(client) == ["a"]
    assert _taken(client) is None
    client.tick(62.0)
    assert isinstance(_taken(client), StokerError)


def test_waiting_for_names_workers_and_dispatcher():
    client = _reading(None, TASK, OTHER)
    client.connection_lost(2, "reset", 0.0)
    assert client.waiting_for() == "worker here:1, worker there:1 (reset)"
    client.session_lost(0.0)
    assert client.waiting_for().startswith("the dispatcher at service:1, ")


def test_a_worker_that_imports_is_named_and_waited_for():
    client = _reading()
    loading = f.Report(encode(TaskEvidence(loading=Loading("torch", 118.7))))
    client.worker_message(1, loading, 119.0)
    client.tick(120.0)
    assert _taken(client) is None
    expected = "worker here:1 (loads the functions: imports torch, 119 s)"
    assert client.waiting_for() == expected
    client.worker_message(1, f.Report(encode(TaskEvidence(1.0))), 120.0)
    assert client.waiting_for() == "worker here:1"


def _of_journaled_dispatcher(patience_ms: int = 600_000) -> c.Client:
    client = _reading()
    welcome = msgspec.structs.replace(WELCOME, dispatcher_patience_ms=patience_ms)
    client.session_message(welcome, 0.0)
    client.session_lost(0.0, "Connection refused")
    return client


def test_dispatcher_with_a_journal_is_waited_for():
    client = _of_journaled_dispatcher()
    client.connection_lost(1, "reset", 0.0)
    for now in (15.0, 599.0):
        client.tick(now)
        assert _taken(client) is None
    client.tick(600.0)
    error = _taken(client)
    assert isinstance(error, UnavailableError)
    assert "has not answered for 600 s (Connection refused)" in str(error)
    assert "Start the dispatcher on its work_dir" in str(error)
    assert _taken(client) is error


def test_waiting_for_tells_how_long():
    waiting = _of_journaled_dispatcher(5000).waiting_for()
    assert waiting.startswith("the dispatcher at service:1 (Connection refused) for up to 5 s, ")
    assert _client().waiting_for() == "the dispatcher at service:1 for up to 60 s"


def test_patience_ends_with_the_next_welcome():
    client = _of_journaled_dispatcher()
    client.session_message(WELCOME, 500.0)
    client.session_lost(1000.0)
    client.connection_lost(1, "reset", 1000.0)
    client.tick(1500.0)
    assert isinstance(_taken(client), UnavailableError)


def test_worker_is_read_on_after_the_patience():
    client = _of_journaled_dispatcher(5000)
    client.worker_message(1, f.Frame(0, ["a"]), 50.0)
    assert _taken(client) == ["a"]
    assert _taken(client) is None
    client.tick(54.0)
    assert _taken(client) is None
    client.tick(55.0)  # workers wait for splits
    assert isinstance(_taken(client), UnavailableError)


NO_PROGRESS: list[f.Message] = [
    f.Ready(0, 2),
    f.Welcome(1, "here:1"),
    f.Counts({}),
    f.Report(encode(TaskEvidence(1.0, 0.1, 0.0, 0.9))),
    f.TaskEnd(0),
    f.WorkerProbeReply(1, 1, "here:1", 1, "", "", 0.0),
]
PROGRESS: list[f.Message] = [f.Frame(0, ["a"]), f.Ready(3)]
OF_A_CLIENT = {f.Want, f.Hello, f.Credit, f.GiveBack, f.WorkerProbe}


def test_nothing_of_a_worker_is_awaited_if_others_compute_it():
    client = _reading()
    client.connection_lost(1, "reset", 10.0)
    client.tick(10.1)
    [cursor] = client.tasks.cursors.values()
    text = cursor.unreachable(15.2, keeps=False)
    assert text is not None
    assert "Other workers compute what was asked of it" in text
    assert "lost" not in text


def test_every_message_of_a_worker_is_progress_or_not():
    kinds = {type(message) for message in PROGRESS + NO_PROGRESS}
    assert kinds | OF_A_CLIENT | {f.Bye} == set(get_args(f.Message))


@pytest.mark.parametrize("message", PROGRESS + NO_PROGRESS, ids=lambda x: type(x).__name__)
def test_only_elements_let_a_client_wait_longer_for_splits(message):
    client = _reading(None, TASK, OTHER)
    client.session_lost(0.0)
    client.worker_message(1, message, 50.0)
    client.take(0.0, 50.0)
    client.take(0.0, 50.0)
    client.tick(59.9)
    assert client.error is None
    client.tick(60.0)
    assert (client.error is None) == (message in PROGRESS)
    client.tick(110.0)
    assert isinstance(client.error, UnavailableError)


def test_totals_of_tasks_are_added_once():
    client = _reading(None, TASK, OTHER)
    client.worker_message(1, f.Counts({"errors_ignored": 2}), 0.0)
    client.worker_message(2, f.Counts({"errors_ignored": 1, "others": 4}), 0.0)
    assert client.take_counts() == {"errors_ignored": 3, "others": 4}
    assert client.take_counts() == {}
    client.connection_lost(1, "reset", 0.0)
    client.tick(10.0)
    client.connected(3)
    client.worker_message(3, f.Welcome(1, "here:1"), 0.0)
    client.worker_message(3, f.Counts({"errors_ignored": 2}), 0.0)
    assert client.take_counts() == {"errors_ignored": 0}
    client.worker_message(3, f.Counts({"errors_ignored": 5}), 0.0)
    assert client.take_counts() == {"errors_ignored": 3}


def _to_dispatcher(actions: list[a.Action]) -> list[m.FromClient]:
    return [action.message for action in actions if isinstance(action, a.ToDispatcher)]


def test_client_leaves_a_task_when_what_has_arrived_is_consumed():
    client = _reading(None, TASK, OTHER)
    _frame(client, 0, ["a"])
    _frame(client, 1, ["b"])
    assert _taken(client) == ["a"]
    client.session_message(m.Tasks(leave={20: 40}), 0.0)
    _frame(client, 2, ["late"])  # the worker gets it back
    assert _taken(client) == ["b"]
    taken, actions = client.take(0.0, 0.0)
    assert taken is None
    actions += client.tick(0.0)
    assert a.ToWorker(1, f.GiveBack(2, 0)) in actions
    assert a.Disconnect(1, farewell=True) in actions
    assert _to_dispatcher(actions) == [m.TaskLeft(20, 40, (2, 0))]
    _frame(client, 0, ["c"], connection=2)
    assert _taken(client) == ["c"]
    closed = _to_dispatcher(client.close(1))
    assert closed == [m.ClientClose({21: (0, 1)})]


def test_a_client_that_leaves_does_not_connect_again():
    client = _reading()
    _frame(client, 0, ["a"])
    client.session_message(m.Tasks(leave={20: 40}), 0.0)
    client.connection_lost(1, "it broke", 0.0)
    assert [x for x in client.tick(100.0) if isinstance(x, a.Connect)] == []
    assert _taken(client) == ["a"]
    _, actions = client.take(0.0, 0.0)
    assert _to_dispatcher(actions + client.tick(0.0)) == [m.TaskLeft(20, 40, (1, 0))]


def _told_to_leave() -> c.Client:
    """Return a consumer that has task 20, and then gives it back: its worker drains."""
    hello = msgspec.structs.replace(
        HELLO,
        parameters=m.JobParameters(ShardingPolicy.OFF, num_consumers=1),
        consumer_index=0,
    )
    client = _client(hello=hello)
    client.session_message(WELCOME, 0.0)
    client.session_message(m.Tasks(added=[TASK]), 0.0)
    first = m.RoundsChange(0, m.RoundPosition(turns=[20]))
    client.session_message(m.Rounds(changes=[first]), 0.0)
    client.connected(1)
    client.worker_message(1, f.Welcome(1, "here:1"), 0.0)
    _frame(client, 0, ["a"])
    last = m.RoundsChange(1, m.RoundPosition(1, runs={20: 1}, step=1), left=[20])
    actions = client.session_message(m.Rounds(changes=[last]), 0.0)
    assert a.ToWorker(1, f.GiveBack(1, 0)) in actions
    return client


def _dialed(actions: list[a.Action]) -> list[int]:
    return [action.connection for action in actions if isinstance(action, a.Connect)]


def test_a_task_is_given_back_to_a_worker_that_drains_until_it_confirms():
    client = _told_to_leave()
    client.connection_lost(1, "it broke", 0.0)
    assert _dialed(client.tick(1.0)) == [2]
    client.connected(2)
    given_back = client.worker_message(2, f.Welcome(1, "here:1", first_frame=1), 1.0)
    assert given_back == [a.ToWorker(2, f.GiveBack(1, 0))]
    _frame(client, 1, ["late"], connection=2)
    assert client.worker_message(2, f.Bye(None), 1.0) == [a.Disconnect(2, farewell=False)]
    assert _dialed(client.tick(100.0)) == []
    assert _taken(client) == ["a"]


def test_a_worker_that_drains_and_refuses_an_old_connection_has_not_confirmed():
    client = _told_to_leave()
    client.worker_message(1, f.Bye(ErrorRecord("UnavailableError", "an older one")), 0.0)
    assert _dialed(client.tick(1.0)) == [2]


def test_a_worker_that_is_lost_while_it_drains_needs_no_confirmation():
    client = _told_to_leave()
    client.connection_lost(1, "it broke", 0.0)
    client.session_message(m.Tasks(lost=[msgspec.structs.replace(LOST, elements=0)]), 0.0)
    assert _dialed(client.tick(100.0)) == []


def test_client_answers_again_if_asked_again_to_leave():
    client = _reading()
    left = [m.TaskLeft(20, 40, (0, 0))]
    for _ in range(2):
        assert _to_dispatcher(client.session_message(m.Tasks(leave={20: 40}), 0.0)) == left


def test_client_leaves_a_task_that_it_was_not_told_of():
    client = _reading()
    actions = client.session_message(m.Tasks(leave={21: 41}), 0.0)
    assert _to_dispatcher(actions) == [m.TaskLeft(21, 41, (0, 0))]


def test_client_reads_a_task_that_it_had_left_from_the_first_frame():
    client = _reading()
    _frame(client, 0, ["a"])
    assert _taken(client) == ["a"]
    client.session_message(m.Tasks(leave={20: 40}), 0.0)
    client.take(0.0, 0.0)
    client.tick(0.0)
    again = msgspec.structs.replace(TASK, reader_id=77)
    [connect] = client.session_message(m.Tasks(added=[again]), 0.0)
    assert connect == a.Connect(2, again)
    assert client.connected(2) == [a.ToWorker(2, f.Hello(1, 1, 77, 20, 0, attempt=2, reports=True))]
    client.worker_message(2, f.Welcome(1, "here:1"), 0.0)
    _frame(client, 0, ["b"], connection=2)
    assert _taken(client) == ["b"]


def test_credit_of_a_task_that_is_left_goes_to_others():
    client = _reading(2, TASK, OTHER)
    client.worker_message(1, f.Ready(5), 0.0)
    client.worker_message(2, f.Ready(5), 0.0)
    actions = client.session_message(m.Tasks(leave={20: 40}), 0.0)
    assert a.ToWorker(2, f.Credit(0, 2, EVEN)) in actions


def test_the_dispatcher_s_warning_is_for_the_user():
    client = _reading()
    assert client.session_message(m.Tasks(warning="careful"), 0.0) == [a.Warn("careful")]


def test_frames_of_a_lost_task_are_ignored():
    """Its worker was frozen, and sends them before it knows that it was removed."""
    client = _reading()
    _frame(client, 0, ["a"])
    client.session_message(m.Tasks(lost=[LOST], computed=True), 0.0)
    _frame(client, 1, ["b"])
    assert client.worker_message(1, f.Ready(3), 0.0) == []
    assert [_taken(client), type(_taken(client))] == [["a"], c.EndOfIteration]


def test_the_end_waits_for_the_dispatcher_with_tensorflows_timing():
    """A worker that registered before the end is read, too."""
    options = ReadOptions(
        processing_mode=ShardingPolicy.OFF,
        dispatcher_address="service:1",
        tensorflow_timing=True,
    )
    client = c.Client(HELLO, options, random.Random(0), 0.0)
    client.session_message(WELCOME, 0.0)
    client.session_message(m.Tasks(added=[TASK], computed=True), 0.0)
    client.connected(1)
    client.worker_message(1, f.Welcome(1, "here:1"), 0.0)
    client.worker_message(1, f.TaskEnd(0), 0.0)
    assert client.take(0.0, 0.0)[0] is None  # the worker confirms the end
    client.worker_message(1, f.TaskEnd(0), 0.0)
    assert (client.take(0.0, 0.1)[0], client.end.expected) == (None, True)
    assert isinstance(client.take(0.0, 0.0 + END_SECONDS)[0], c.EndOfIteration)
    client.session_message(m.Tasks(computed=True), 0.1)
    assert isinstance(client.take(0.0, 0.1)[0], c.EndOfIteration)


def test_a_reading_contains_what_came_from_each_task():
    client = _reading(None, TASK, OTHER)
    client.connected(2, "tcp")
    assert client.take(0.0, 0.0)[0] is None  # it waits
    client.worker_message(1, f.Frame(0, ["a", "b"], nbytes=20), 1.0)
    client.worker_message(1, f.Report(encode(TaskEvidence(seconds=2.0)), 4, 3), 2.0)
    client.worker_message(2, f.TaskEnd(0), 5.0)
    assert client.take(0.0, 5.0)[0] is not None
    assert client.take(0.0, 5.0)[0] is None
    reading = client.reading(9.0, 6.0)
    assert (reading.seconds, reading.waited) == (9.0, 2.0)
    assert (reading.elements, reading.bytes) == (2, 20)
    assert reading.assigns_splits
    first, second = reading.tasks
    assert (first.worker, first.elements, first.bytes) == ("here:1", 2, 20)
    assert (first.evidence, first.backlog) == (TaskEvidence(seconds=2.0), 0.75)
    assert first.while_waiting.seconds == 1.0, "it waited for one of the first two seconds"
    assert second.protocol == "tcp"
    assert second.waited_since_end == 1.0, "it has waited for one since the end"
    client.worker_message(1, f.Frame(1, ["c"], nbytes=10), 6.0)
    assert reading.elements == 2, "a reading does not change"


def test_a_task_that_joins_late_is_judged_from_then_on():
    client = _reading(None, TASK)
    client.session_message(m.Tasks(added=[OTHER]), 100.0)
    client.connected(2)
    client.worker_message(2, f.Welcome(1, "there:1"), 100.0)
    assert client.take(0.0, 100.0)[0] is None
    client.worker_message(2, f.Report(encode(TaskEvidence(seconds=1.0)), 4, 3), 101.0)
    assert client.reading(101.0, 101.0).tasks[1].while_waiting.seconds == 1.0


def test_the_time_after_an_interrupted_wait_is_no_wait():
    client = _reading(None, TASK, OTHER)
    client.worker_message(1, f.TaskEnd(0), 0.0)
    assert client.take(0.0, 0.0)[0] is None
    assert client.wait.run(0, 3.0) == 3.0
    assert client.reading(10.0, 10.0).tasks[0].waited_since_end == 3.0
    assert client.take(0.0, 10.0)[0] is None
    assert client.reading(12.0, 12.0).tasks[0].waited_since_end == 5.0


def test_the_buffer_is_filled_by_elements_that_are_not_consumed():
    client = _reading(4)
    client.worker_message(1, f.Ready(4), 0.0)
    assert client.consumption.filled(0) == 0.0
    _frame(client, 0, [1, 2])
    _frame(client, 1, [3])
    assert client.consumption.filled(0) == 0.75
    assert _taken(client) == [1, 2]
    assert client.consumption.filled(1) == 0.5
    assert client.consumption.filled(2) == 0.25
    assert _taken(client) == [3]
    assert client.consumption.filled(1) == 0.0
    assert client.take(0.0, 0.0)[0] is None
    assert client.consumption.filled(0) == 0.0


def test_consumed_elements_fill_no_buffer_before_they_are_accounted_for():
    client = _reading(None)
    for number in range(4):
        _frame(client, number, [number])
    assert _taken(client) == [0]
    assert _taken(client) == [1]
    assert client.consumption.outstanding == 4, "both count when the next message arrives"
    assert client.consumption.filled(1) == 2 / 4


def test_cancelled_job_yields_nothing_more():
    client = _reading()
    _frame(client, 0, [1, 2])
    _frame(client, 1, [3])
    assert _taken(client) == [1, 2]
    client.session_message(m.Refused(ErrorRecord("CancelledError", "it was cancelled")), 0.0)
    assert isinstance(_taken(client), CancelledError)
    assert isinstance(_taken(client), CancelledError)
