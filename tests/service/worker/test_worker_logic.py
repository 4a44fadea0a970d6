"""The worker's logic by values: messages in, actions out."""

from collections import Counter

import msgspec

from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.keys import reader_key
from stoker.service.loading import Loading
from stoker.service.task_evidence import TaskEvidence, decode
from stoker.service.worker import actions as a
from stoker.service.worker import logic as w
from stoker.service.worker.tasks import task as task_module
from stoker.wire import frames as f

HELLO = m.WorkerHello(1, 1, "here:1", {"tcp": "here:1"}, m.Versions("3.11", "2"))
WELCOME = m.WorkerWelcome(1, 7, "journal", 1000)
SPLITS = m.SplitTask(sources=[m.SplitSource(0, 5)])
START = m.TaskStart(20, 30, "dataset", 1, (0,), SPLITS)
WANT = m.SplitRequest(20, 0, 0, want=2)
CREDIT = f.Credit(0, 100, 1 << 20)


def _hello(client: int = 40, *, attempt: int = 1, next_frame: int = 0, metered: bool = False):
    key = reader_key(b"", client)
    return f.Hello(1, 1, client, 20, next_frame, attempt=attempt, metered=metered, key=key)


def _worker(buffer_bytes: int = 1000) -> w.Worker:
    worker = w.Worker(HELLO, buffer_bytes)
    worker.session_opened()
    worker.session_message(WELCOME, 0.0)
    return worker


def _running(start: m.TaskStart = START) -> w.Worker:
    """Return a worker with task 20, read by client 40 on connection 1 with credit for 100."""
    worker = _worker()
    worker.session_message(start, 0.0)
    worker.client_message(1, _hello(), 0.0)
    worker.client_message(1, CREDIT, 0.0)
    return worker


def _bye(code: str, message: str) -> f.Bye:
    return f.Bye(ErrorRecord(code, message))


def _sent(actions: list[a.Action]) -> list[object]:
    """Return the messages to clients; frames as (connection, number, elements)."""
    return [
        (action.connection, action.message.number, action.message.elements)
        if isinstance(action.message, f.Frame)
        else (action.connection, action.message)
        for action in actions
        if isinstance(action, a.SendToClient)
    ]


def _progress(actions: list[a.Action]) -> list[m.TaskProgress]:
    messages = [action.message for action in actions if isinstance(action, a.SendToDispatcher)]
    return [message for message in messages if isinstance(message, m.TaskProgress)]


def test_worker_sends_hello_and_adopts_the_heartbeat():
    worker = w.Worker(HELLO, 1000)
    hello = msgspec.structs.replace(HELLO, session=1)
    assert worker.session_opened() == [a.SendToDispatcher(hello)]
    assert worker.session_message(WELCOME, 0.0) == [a.SetHeartbeatInterval(1000)]


def test_task_is_opened_once():
    worker = _worker()
    assert worker.session_message(START, 0.0) == [a.OpenTask(START), a.SendToDispatcher(WANT)]
    assert worker.session_message(START, 0.0) == []


def test_computed_elements_go_to_a_reader_with_credit():
    worker = _running()
    assert _sent(worker.produced(20, Chunk(["a", "b"], 2))) == [(1, 0, ["a", "b"])]


def test_early_client_waits_for_its_task():
    worker = _worker()
    assert worker.client_message(1, _hello(), 0.0) == []
    assert worker.session_message(START, 1.0) == [
        a.OpenTask(START),
        a.SendToDispatcher(WANT),
        a.SendToClient(1, f.Welcome(1, "here:1", 1000)),
    ]


def test_client_of_a_missing_task_is_dismissed():
    worker = _worker()
    worker.client_message(1, _hello(), 0.0)
    assert worker.tick(9.0) == []
    error = "task 20 does not run on this worker"
    assert worker.tick(11.0) == [
        a.SendToClient(1, _bye("NotFoundError", error)),
        a.CloseConnection(1),
    ]
    assert not worker.clients.parked


def test_new_connection_resumes_at_the_first_missing_frame():
    worker = _running()
    worker.produced(20, Chunk(["a"], 1))
    worker.produced(20, Chunk(["b"], 1))
    worker.client_lost(1)
    assert worker.produced(20, Chunk(["c"], 1)) == []
    worker.client_message(2, _hello(attempt=2, next_frame=1), 0.0)
    assert _sent(worker.client_message(2, CREDIT, 0.0)) == [(2, 1, ["b"]), (2, 2, ["c"])]


def test_lost_frames_are_sent_again_to_their_client():
    worker = _running()
    worker.produced(20, Chunk(["a"], 1))
    worker.client_lost(1)
    worker.client_message(5, _hello(client=41), 0.0)
    worker.client_message(5, CREDIT, 0.0)
    worker.client_message(2, _hello(attempt=2), 0.0)
    assert _sent(worker.client_message(2, CREDIT, 0.0)) == [(2, 0, ["a"])]


def test_late_hello_of_an_older_attempt_is_refused():
    worker = _running()
    worker.client_message(2, _hello(attempt=3), 0.0)
    refused = worker.client_message(3, _hello(attempt=2), 0.0)
    error = "a newer connection of the client arrived before"
    assert refused == [a.SendToClient(3, _bye("UnavailableError", error)), a.CloseConnection(3)]
    worker.client_message(2, CREDIT, 0.0)
    assert _sent(worker.produced(20, Chunk(["a"], 1))) == [(2, 0, ["a"])]


def test_released_client_cannot_resume_dropped_frames():
    worker = _running()
    worker.produced(20, Chunk(["a"], 1))
    worker.session_message(m.ClientReleased(20, 40), 0.0)
    [bye, hang_up] = worker.client_message(2, _hello(attempt=2, next_frame=1), 0.0)
    assert isinstance(bye, a.SendToClient)
    assert isinstance(bye.message, f.Bye)
    assert bye.message.error is not None
    assert bye.message.error.code == "NotFoundError"
    assert hang_up == a.CloseConnection(2)


def test_elements_given_back_go_to_the_next_client():
    worker = _running()
    worker.produced(20, Chunk(["a", "b", "c"], 3))
    assert worker.client_message(1, f.GiveBack(0, 1), 0.0) == [
        a.SendToClient(1, f.Bye()),
        a.CloseConnection(1),
    ]
    worker.client_message(2, _hello(client=41), 0.0)
    assert _sent(worker.client_message(2, CREDIT, 0.0)) == [(2, 0, ["b", "c"])]


def test_client_released_with_consumed_gives_back():
    worker = _running()
    worker.produced(20, Chunk(["a", "b", "c"], 3))
    worker.client_lost(1)
    worker.session_message(m.ClientReleased(20, 40, consumed=(0, 2)), 0.0)
    worker.client_message(2, _hello(client=41), 0.0)
    assert _sent(worker.client_message(2, CREDIT, 0.0)) == [(2, 0, ["c"])]


def test_elements_of_a_lost_client_are_dropped_and_counted():
    worker = _running()
    worker.produced(20, Chunk(["a", "b", "c"], 3))
    worker.session_message(m.ClientReleased(20, 40), 0.0)
    assert worker.tasks[20].dropped == 3
    assert not worker.clients.opened


def test_a_task_is_delivered_once_its_clients_have_consumed_it():
    worker = _running()
    worker.produced(20, Chunk(["a", "b"], 2))
    said = worker.exhausted(20)
    ended = m.TaskProgress(20, exhausted=True, computed=m.TaskReport(2, 2))
    assert said[-1] == a.SendToDispatcher(ended)
    said = worker.client_message(1, f.Credit(1, 10, 10), 0.0)
    assert said[-1] == a.SendToDispatcher(msgspec.structs.replace(ended, delivered=True))


def test_draining_without_splits_computes_no_more():
    worker = _running(m.TaskStart(20, 30, "data", 1, (0,)))
    worker.produced(20, Chunk(["a"], 1))
    said = worker.drain(0.0)
    assert said[:2] == [a.SendToDispatcher(m.WorkerDraining()), a.ClosePipeline(20)]
    assert _sent(said) == [(1, f.TaskEnd(1))]
    assert not worker.drained
    worker.produced(20, Chunk(["b"], 1))  # the pipeline had begun it
    assert worker.leave() == [a.SendToDispatcher(m.WorkerLeave({20: 1}, {20: m.TaskReport(1, 1)}))]
    said = worker.client_message(1, f.Credit(1, 10, 10), 0.0)
    delivered = m.TaskProgress(20, delivered=True, computed=m.TaskReport(1, 1))
    assert a.SendToDispatcher(delivered) in said
    assert worker.drained


def test_draining_finishes_the_splits_begun():
    worker = _running()
    worker.need_split(20, 0, 0, 0.0)
    worker.session_message(m.SplitGrant(20, 0, 0, splits=[(0, "file"), (1, "other")]), 0.0)
    said = worker.drain(0.0)
    assert said == [a.SendToDispatcher(m.WorkerDraining()), a.DrainPipeline(20)]
    said = worker.session_message(m.SplitGrant(20, 0, 0, begun=[0]), 0.0)
    assert a.GiveSplit(20, 0, 0, ["file"]) in said
    assert a.GiveSplit(20, 0, 0, []) in worker.need_split(20, 0, 0, 1.0)
    assert a.GiveSplit(20, 0, 1, []) in worker.need_split(20, 0, 1, 1.0)
    assert worker.exhausted(20)[-1] == a.SendToDispatcher(m.TaskProgress(20, delivered=True))


def test_second_drain_changes_nothing():
    worker = _running()
    worker.need_split(20, 0, 0, 0.0)
    worker.session_message(m.Drain(), 0.0)
    assert worker.drain(0.0) == []
    granted = m.SplitGrant(20, 0, 0, splits=[(0, "file")])
    assert worker.session_message(granted, 0.0) == []


def _in_rounds(mode: m.AnyTask = SPLITS) -> w.Worker:
    """Return a worker whose task has computed three runs for its only consumer."""
    worker = _worker()
    mode = msgspec.structs.replace(mode, sharing=m.InRounds(1))
    worker.session_message(msgspec.structs.replace(START, mode=mode), 0.0)
    worker.client_message(1, msgspec.structs.replace(_hello(), consumer_index=0), 0.0)
    worker.produced(20, Chunk([1, 2, 3], 3))
    worker.client_message(1, f.Credit(0, 1, 1000), 0.0)
    return worker


def test_consumers_are_asked_at_once_to_leave_what_all_workers_yield():
    worker = _in_rounds(m.WholeTask())
    [progress] = _progress(worker.drain(0.0))
    assert (progress.leaving, progress.delivered, worker.can_hurry) == (True, False, False)
    [progress] = _progress(worker.client_message(1, f.GiveBack(1, 0), 0.0))
    assert (progress.delivered, worker.drained) == (True, True)


def test_consumers_leave_splits_that_only_this_worker_has_when_time_is_over():
    worker = _in_rounds()
    assert not _progress(worker.drain(0.0))
    worker.exhausted(20)
    assert worker.can_hurry
    [progress] = _progress(worker.hurry())
    assert progress.leaving
    worker.client_message(1, f.GiveBack(1, 0), 0.0)
    assert worker.drained
    assert worker.leave() == [a.SendToDispatcher(m.WorkerLeave({20: 2}, {20: m.TaskReport(3, 3)}))]


def test_a_drain_after_the_last_split_is_the_end_of_the_data():
    worker = _running()
    worker.need_split(20, 0, 0, 0.0)
    worker.session_message(m.SplitGrant(20, 0, 0, end=True), 0.0)
    worker.drain(0.0)
    said = worker.exhausted(20)
    assert said[-1] == a.SendToDispatcher(m.TaskProgress(20, exhausted=True, delivered=True))


def test_a_draining_worker_starts_no_task():
    worker = _running()
    worker.drain(0.0)
    said = worker.session_message(m.TaskStart(21, 30, "data", 1, (0,)), 0.0)
    assert said == [a.SendToDispatcher(m.TaskProgress(21, delivered=True))]
    worker.session_lost()
    state = {"worker_id": 7, "journal_id": "journal", "tasks": [20], "readers": {20: [40]}}
    draining = msgspec.structs.replace(HELLO, draining=True, session=2, **state)
    assert worker.session_opened() == [a.SendToDispatcher(draining)]


def test_a_worker_that_leaves_counts_what_is_lost_where_it_can():
    worker = _running()
    worker.produced(20, Chunk(["a"], 1))
    assert worker.leave() == [a.SendToDispatcher(m.WorkerLeave({}, {20: m.TaskReport(1, 1)}))]
    worker.exhausted(20)
    assert worker.leave() == [a.SendToDispatcher(m.WorkerLeave({20: 1}, {20: m.TaskReport(1, 1)}))]


def test_a_released_client_may_not_read_again():
    worker = _running()
    worker.session_message(m.ClientReleased(20, 41), 0.0)
    [bye, hang_up] = worker.client_message(2, _hello(client=41), 0.0)
    assert bye == a.SendToClient(
        2, _bye("NotFoundError", "Unknown iteration client id 41. It was released")
    )
    assert hang_up == a.CloseConnection(2)
    assert list(worker.tasks[20].readers) == [40]


def test_released_clients_are_remembered_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(task_module, "REMEMBERED_RELEASED", 3)
    worker = _running()
    for client_id in range(50, 60):
        worker.session_message(m.ClientReleased(20, client_id), 0.0)
    assert list(worker.tasks[20].released) == [57, 58, 59]


def test_end_is_sent_again_after_elements_were_given_back():
    worker = _running()
    worker.client_message(2, _hello(client=41), 0.0)
    worker.client_message(2, CREDIT, 0.0)
    worker.produced(20, Chunk(["a", "b"], 2))
    assert _sent(worker.exhausted(20)) == [(2, f.TaskEnd(0)), (1, f.TaskEnd(1))]
    assert _sent(worker.client_message(1, f.GiveBack(0, 1), 0.0)) == [
        (1, f.Bye()),
        (2, 0, ["b"]),
        (2, f.TaskEnd(1)),
    ]


def test_reader_that_was_sent_end_is_served_last():
    worker = _running()
    worker.produced(20, Chunk(["a"], 1))
    worker.exhausted(20)  # client 40 is sent `TaskEnd`
    worker.client_message(2, _hello(client=41), 0.0)
    worker.client_message(3, _hello(client=42), 0.0)
    worker.client_message(3, CREDIT, 0.0)
    worker.tasks[20].readers[42].ended = False
    worker.tasks[20].buffer.give_back(41, [Chunk(["b"], 1)])
    assert _sent(worker.client_message(2, f.Credit(0, 0, 0), 0.0))[0] == (3, 0, ["b"])


def test_metered_client_is_announced_elements_before_credit():
    worker = _worker()
    worker.session_message(START, 0.0)
    worker.client_message(1, _hello(metered=True), 0.0)
    assert _sent(worker.produced(20, Chunk(["a", "b"], 2))) == [(1, f.Ready(2))]
    assert _sent(worker.client_message(1, f.Credit(0, 1, 100), 0.0)) == [
        (1, 0, ["a"]),
        (1, f.Ready(1)),
    ]


def test_unused_metered_credit_is_returned():
    worker = _worker()
    worker.session_message(START, 0.0)
    worker.client_message(1, _hello(metered=True), 0.0)
    assert _sent(worker.client_message(1, f.Credit(0, 3, 100), 0.0)) == [(1, f.Ready(0, 3))]
    assert _sent(worker.produced(20, Chunk(["a"], 1))) == [(1, f.Ready(1))]


def test_full_buffer_pauses_the_pipeline():
    worker = _worker(buffer_bytes=10)
    worker.session_message(START, 0.0)
    assert worker.may_produce(20)
    worker.produced(20, Chunk(["a"], 10))
    assert not worker.may_produce(20)
    worker.client_message(1, _hello(), 0.0)
    assert a.Produce(20) in worker.client_message(1, CREDIT, 0.0)
    assert worker.may_produce(20)


def test_source_reads_begun_splits_until_the_end():
    worker = _running()
    assert worker.need_split(20, 0, 0, 0.0) == []
    grant = m.SplitGrant(20, 0, 0, splits=[(3, "file")])
    begin = m.SplitRequest(20, 0, 0, begin=[3], want=2)
    assert worker.session_message(grant, 0.0) == [a.SendToDispatcher(begin)]
    given = worker.session_message(m.SplitGrant(20, 0, 0, begun=[3]), 0.0)
    assert a.GiveSplit(20, 0, 0, ["file"]) in given
    worker.need_split(20, 0, 0, 1.0)
    done = m.SplitRequest(20, 0, 0, done=True)
    assert worker.session_message(m.SplitGrant(20, 0, 0, end=True), 1.0) == [
        a.GiveSplit(20, 0, 0, []),
        a.SendToDispatcher(done),
    ]
    assert worker.tasks[20].queues == {}


def test_first_split_of_a_single_source_is_prefetched():
    worker = _running()
    worker.session_message(m.SplitGrant(20, 0, 0, splits=[(3, "file"), (4, "next")]), 0.0)
    assert worker.session_message(m.SplitGrant(20, 0, 0, begun=[3]), 0.0) == []
    assert worker.need_split(20, 0, 0, 0.0) == [a.GiveSplit(20, 0, 0, ["file"])]


def test_splits_of_several_sources_are_not_prefetched():
    sources = [m.SplitSource(0, 5), m.SplitSource(1, 5)]
    start = m.TaskStart(20, 30, "data", 1, (0,), m.SplitTask(sources=sources))
    assert _worker().session_message(start, 0.0) == [a.OpenTask(start)]


def test_source_of_a_stopped_task_gets_its_end():
    assert _worker().need_split(99, 0, 0, 0.0) == [a.GiveSplit(99, 0, 0, [])]


def test_new_session_repeats_what_may_be_lost():
    worker = _running()
    worker.need_split(20, 0, 0, 0.0)
    worker.session_message(m.SplitGrant(20, 0, 0, splits=[(3, "file")]), 0.0)
    worker.session_lost()
    worker.exhausted(20)
    [said] = worker.session_opened()
    assert isinstance(said, a.SendToDispatcher)
    assert isinstance(said.message, m.WorkerHello)
    assert (said.message.worker_id, said.message.tasks) == (7, [20])
    assert said.message.readers == {20: [40]}
    assert worker.session_message(WELCOME, 1.0) == [
        a.SetHeartbeatInterval(1000),
        a.SendToDispatcher(m.SplitRequest(20, 0, 0, [3], 2)),
        a.SendToDispatcher(m.TaskProgress(20, exhausted=True, delivered=True)),
    ]


def test_removed_worker_starts_over():
    worker = _running()
    worker.session_lost()
    worker.session_opened()
    actions = worker.session_message(m.WorkerWelcome(1, 8, "journal", 1000), 1.0)
    why = "the dispatcher had removed this worker, which starts over"
    assert actions == [
        a.ClosePipeline(20),
        a.SendToClient(1, _bye("NotFoundError", why)),
        a.CloseConnection(1),
        a.SetHeartbeatInterval(1000),
    ]
    assert worker.tasks == {}


def test_stopped_task_leaves_nothing():
    worker = _running()
    worker.produced(20, Chunk(["a"], 1))
    assert worker.session_message(m.TaskStop(20), 0.0)[0] == a.ClosePipeline(20)
    assert (worker.tasks, worker.clients.opened) == ({}, {})
    assert worker.session_message(m.TaskStop(20), 0.0) == []


def test_a_stranger_without_the_key_gets_nothing():
    worker = _running(m.TaskStart(20, 30, "data", 1, (0,), key=b"secret"))
    worker.produced(20, Chunk(["a"], 1))
    for key in (b"", b"wrong", reader_key(b"", 41), reader_key(b"secret", 40)):
        hello = f.Hello(1, 1, 41, 20, 0, attempt=1, key=key)
        assert worker.client_message(9, hello, 0.0) == [
            a.SendToClient(
                9,
                _bye("PermissionDeniedError", "this is not the key of client 41 for task 20"),
            ),
            a.CloseConnection(9),
        ]
    assert 41 not in worker.tasks[20].readers


def test_client_of_another_data_protocol_is_dismissed():
    worker = _running()
    [bye, hang_up] = worker.client_message(9, f.Hello(98, 99, 1, 20, 0), 0.0)
    assert isinstance(bye, a.SendToClient)
    assert isinstance(bye.message, f.Bye)
    assert bye.message.error is not None
    assert "98 to 99" in bye.message.error.message
    assert hang_up == a.CloseConnection(9)


def test_totals_are_sent_on_change_and_before_the_end():
    worker = _running()
    assert worker.counted(20, {"errors_ignored": 1}) == []
    assert _sent(worker.produced(20, Chunk(["a"], 1))) == [
        (1, f.Counts({"errors_ignored": 1})),
        (1, 0, ["a"]),
    ]
    assert _sent(worker.produced(20, Chunk(["b"], 1))) == [(1, 1, ["b"])]
    worker.counted(20, {"errors_ignored": 3})
    assert _sent(worker.exhausted(20)) == [(1, f.Counts({"errors_ignored": 3})), (1, f.TaskEnd(2))]


def test_totals_are_sent_again_on_a_new_connection():
    worker = _running()
    worker.counted(20, {"errors_ignored": 1})
    worker.produced(20, Chunk(["a"], 1))
    worker.client_lost(1)
    actions = worker.client_message(2, _hello(attempt=2, next_frame=1), 0.0)
    assert _sent(actions)[-1] == (2, f.Counts({"errors_ignored": 1}))
    assert worker.counted(77, {"errors_ignored": 1}) == []


def test_metered_reader_blocked_by_bytes_is_not_asked():
    worker = _worker(buffer_bytes=10)
    worker.session_message(START, 0.0)
    worker.client_message(1, _hello(metered=True), 0.0)
    assert (1, f.Ready(3)) in _sent(worker.produced(20, Chunk(["a", "b", "c"], 30)))
    assert _sent(worker.client_message(1, f.Credit(0, 2, 1 << 20), 0.0)) == [(1, 0, ["a"])]
    assert _sent(worker.client_message(1, f.Credit(1, 2, 1 << 20), 0.0)) == [
        (1, 1, ["b"]),
        (1, f.Ready(1)),
    ]


def test_paused_client_holds_its_window_only():
    worker = _running()
    worker.client_message(2, _hello(41), 0.0)
    worker.client_message(2, f.Credit(0, 4, 1 << 20), 0.0)
    actions = worker.produced(20, Chunk(list(range(104)), 104))
    shares = Counter[int]()
    for action in actions:
        if isinstance(action, a.SendToClient) and isinstance(action.message, f.Frame):
            shares[action.connection] += len(action.message.elements)
    assert shares == {1: 100, 2: 4}
    assert _sent(worker.produced(20, Chunk([104, 105], 2))) == []
    assert _sent(worker.client_message(1, f.Credit(4, 200, 1 << 20), 0.0)) == [(1, 4, [104, 105])]


def test_tick_announces_the_next_split_to_a_slow_dispatcher():
    worker = _worker()
    worker.session_message(START, 0.0)
    now = 0.0
    for number in range(4):
        worker.need_split(20, 0, 0, now)
        grant = m.SplitGrant(20, 0, 0, splits=[(number, [number, number + 1])])
        worker.session_message(grant, now)
        worker.session_message(m.SplitGrant(20, 0, 0, begun=[number]), now + 0.2)
        now += 1.2
    worker.session_message(m.SplitGrant(20, 0, 0, splits=[(4, [4, 5])]), now - 0.9)
    assert worker.tick(now - 0.5) == []
    request = m.SplitRequest(20, 0, 0, begin=[4], want=2)
    assert worker.tick(now - 0.2) == [a.SendToDispatcher(request)]


def test_welcome_of_another_journal_ends_the_tasks():
    worker = _running()
    worker.session_lost()
    worker.session_opened()
    actions = worker.session_message(msgspec.structs.replace(WELCOME, journal_id="other"), 0.0)
    assert a.ClosePipeline(20) in actions
    assert not worker.tasks


def test_drain_waits_until_a_restarted_dispatcher_knows():
    worker = _worker()
    worker.session_message(msgspec.structs.replace(WELCOME, journaled=True), 0.0)
    worker.session_message(START, 0.0)
    worker.exhausted(20)
    worker.session_lost()
    worker.drain(0.0)
    assert not worker.drained
    worker.session_opened()
    worker.session_message(msgspec.structs.replace(WELCOME, journaled=True), 0.0)
    assert worker.drained


def test_drain_does_not_wait_for_a_dispatcher_without_a_journal():
    worker = _running()
    worker.exhausted(20)
    worker.session_lost()
    worker.drain(0.0)
    assert worker.drained


def test_end_of_a_source_is_reported_again_on_a_new_session():
    worker = _running()
    worker.session_message(m.SplitGrant(20, 0, 0, end=True), 0.0)
    worker.need_split(20, 0, 0, 0.0)
    worker.session_lost()
    worker.session_opened()
    actions = worker.session_message(WELCOME, 0.0)
    assert a.SendToDispatcher(m.SplitRequest(20, 0, 0, done=True)) in actions


def _consumer(client: int, **fields) -> f.Hello:
    return msgspec.structs.replace(_hello(client, **fields), consumer_index=0)


def _with_consumer(*elements: int) -> w.Worker:
    """Return a worker with a task of a coordinated read that client 40 reads on connection 1."""
    start = m.TaskStart(20, 30, "dataset", 1, (0,), m.WholeTask(m.InRounds(1)))
    worker = _worker()
    worker.session_message(start, 0.0)
    worker.client_message(1, _consumer(40), 0.0)
    worker.client_message(1, CREDIT, 0.0)
    worker.produced(20, Chunk(list(elements), 10 * len(elements)))
    return worker


def _first_frame(actions: list[a.Action]) -> int:
    """Return the first frame that a `Welcome` announces."""
    messages = [action.message for action in actions if isinstance(action, a.SendToClient)]
    [welcome] = [message for message in messages if isinstance(message, f.Welcome)]
    return welcome.first_frame


def test_frames_of_a_coordinated_read_have_the_numbers_of_the_runs():
    worker = _with_consumer(0, 1, 2)
    worker.client_message(1, f.GiveBack(1, 0), 0.0)
    assert _first_frame(worker.client_message(2, _consumer(41, next_frame=0), 0.0)) == 1
    sent = _sent(worker.client_message(2, CREDIT, 0.0))
    assert sent == [(2, 1, [1]), (2, 2, [2])]


def test_a_consumer_whose_welcome_was_lost_connects_again():
    worker = _with_consumer(0, 1, 2)
    worker.client_message(1, f.GiveBack(2, 0), 0.0)
    assert _first_frame(worker.client_message(2, _consumer(41), 0.0)) == 2
    worker.client_lost(2)
    assert _first_frame(worker.client_message(3, _consumer(41, attempt=2), 0.0)) == 2


def test_a_consumer_skips_to_the_run_that_it_needs():
    worker = _with_consumer(0, 1, 2)
    worker.client_message(1, f.GiveBack(0, 0), 0.0)
    worker.client_message(2, _consumer(41), 0.0)
    sent = _sent(worker.client_message(2, f.Credit(2, 100, 1 << 20), 0.0))
    assert sent == [(2, 2, [2])]


def test_a_consumer_whose_skip_was_lost_connects_again():
    worker = _with_consumer(0, 1, 2)
    worker.client_message(1, f.GiveBack(0, 0), 0.0)
    worker.client_message(2, _consumer(41), 0.0)
    worker.client_lost(2)
    again = _consumer(41, attempt=2, next_frame=2)
    assert _first_frame(worker.client_message(3, again, 0.0)) == 2
    assert _sent(worker.client_message(3, CREDIT, 0.0)) == [(3, 2, [2])]


def test_a_consumer_takes_the_place_of_one_that_the_dispatcher_has_replaced():
    worker = _with_consumer(0, 1)
    sent = _sent(worker.client_message(2, _consumer(41), 0.0))
    bye = _bye("NotFoundError", "Unknown iteration client id 40. It was released")
    assert sent[0] == (1, bye)
    [refused, *_] = _sent(worker.client_message(3, _consumer(40, attempt=2), 0.0))
    assert refused == (3, bye)


def _reported(actions: list[a.Action]) -> list[tuple[int, TaskEvidence | None, int, int]]:
    return [
        (
            action.connection,
            decode(action.message.evidence),
            action.message.chunks,
            action.message.backlogged,
        )
        for action in actions
        if isinstance(action, a.SendToClient) and isinstance(action.message, f.Report)
    ]


def test_evidence_is_sent_to_readers_that_ask_for_it():
    worker = _running()
    worker.client_message(2, _hello(41), 0.0)
    reports = msgspec.structs.replace(_hello(42), reports=True)
    worker.client_message(3, reports, 0.0)
    evidence = TaskEvidence(seconds=2.0)
    assert _reported(worker.measured(20, evidence)) == [
        (3, msgspec.structs.replace(evidence, occupancy=0.0), 0, 0)
    ]
    assert _reported(worker.produced(20, Chunk(["a"], 1))) == [], "nothing has changed"
    assert worker.measured(77, evidence) == []


def test_evidence_contains_the_buffer_and_its_backlog():
    worker = _worker()
    worker.session_message(START, 0.0)
    worker.client_message(1, msgspec.structs.replace(_hello(), reports=True), 0.0)
    for element in "abcd":  # no credit: all elements wait
        worker.produced(20, Chunk([element], 250))
    [(_, evidence, chunks, backlogged)] = _reported(worker.measured(20, TaskEvidence()))
    assert evidence is not None
    assert (evidence.chunks, evidence.occupancy) == (4, (0 + 0.25 + 0.5 + 0.75) / 4)
    assert (evidence.elements, evidence.bytes) == (4, 1000)
    assert (chunks, backlogged) == (4, 3)


def test_the_last_evidence_comes_before_the_end_and_stays():
    worker = _worker()
    worker.session_message(START, 0.0)
    hello = msgspec.structs.replace(_hello(), reports=True)
    worker.client_message(1, hello, 0.0)
    last = TaskEvidence(seconds=2.0, ended=True)
    actions = worker.measured(20, last) + worker.exhausted(20)
    messages = [action.message for action in actions if isinstance(action, a.SendToClient)]
    assert [type(message) for message in messages] == [f.Report, f.TaskEnd]
    assert worker.measured(20, TaskEvidence(seconds=1.0)) == []
    again = msgspec.structs.replace(hello, attempt=2)
    [(connection, evidence, _, _)] = _reported(worker.client_message(2, again, 0.0))
    assert (connection, evidence) == (2, msgspec.structs.replace(last, occupancy=0.0))


def test_heartbeat_has_the_tasks_that_have_computed_since_the_last():
    worker = _running()
    assert worker.heartbeat(1.0) == m.Heartbeat({}, 1.0)
    worker.produced(20, Chunk([1, 2], 16))
    worker.produced(20, Chunk([], 0, ErrorRecord("ValueError", "no")))
    assert worker.heartbeat(2.0) == m.Heartbeat({20: m.TaskReport(2, 16, 1)}, 2.0)
    assert worker.heartbeat(3.0) == m.Heartbeat({}, 3.0)
    worker.produced(20, Chunk([3], 8))
    loading = Loading("torch", 2.0)
    assert worker.heartbeat(4.0, loading) == m.Heartbeat(
        {20: m.TaskReport(3, 24, 1)}, 4.0, loading=loading
    )


def test_heartbeats_of_a_new_session_have_all_tasks_again():
    worker = _running()
    worker.produced(20, Chunk([1], 8))
    worker.heartbeat(1.0)
    worker.session_lost()
    worker.session_opened()
    assert worker.heartbeat(2.0).tasks == {}  # before the welcome
    worker.session_message(WELCOME, 0.0)
    assert worker.heartbeat(3.0).tasks == {20: m.TaskReport(1, 8)}
