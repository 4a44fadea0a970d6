"""Tasks by position: wants of clients in, turns of the pipeline and frames out."""

import random

import msgspec
import pytest

from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.keys import reader_key
from stoker.service.task_evidence import TaskEvidence, decode
from stoker.service.worker import actions as a
from stoker.service.worker.wants.position_reader import MAX_RANGES
from stoker.wire import frames as f
from tests.service.worker.wants.scene import BUFFER_BYTES, LENGTH, TASK, Scene, start, want

BIG = 1 << 30


@pytest.fixture
def scene() -> Scene:
    """Return a worker with one client on connection 1."""
    scene = Scene()
    scene.connect()
    return scene


def _measured(scene: Scene) -> Scene:
    """Let the worker learn the size of elements: its first turn has a single one."""
    scene.say(want(0, (0, 1, 1)))
    assert scene.ask() == range(1)
    scene.produce()
    return scene


def test_wanted_positions_are_computed_and_sent(scene: Scene):
    scene.say(want(0, (0, 40, 1)))
    scene.compute()
    assert scene.places() == list(range(40))
    assert scene.asks


def test_nothing_is_computed_that_nobody_wants(scene: Scene):
    assert scene.ask() is None
    scene.say(want(3))
    assert not scene.turns


def test_a_want_that_arrives_before_the_pipeline_waits_for_it(scene: Scene):
    scene.say(want(0, (0, 1, 1)))
    assert scene.ask() == range(1)


def test_first_turn_is_one_element_and_later_ones_are_of_a_frame(scene: Scene):
    scene.say(want(0, (0, 500, 1)))
    turns = [scene.ask(), scene.ask()]
    assert turns == [range(1), range(1, 2)]
    scene.produce()
    assert scene.ask() == range(2, 27)  # a quarter of the buffer


def test_ranges_keep_their_step_and_order(scene: Scene):
    scene.say(want(3, (3, 5, 4), (503, 3, 4)))
    scene.compute()
    assert scene.places() == [3, 7, 11, 15, 19, 503, 507, 511]


def test_frame_has_the_positions_of_several_turns(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 10, 1), (50, 5, 2), limit=0, nbytes=0))
    scene.compute()
    assert scene.places() == [0, *range(1, 2)]
    scene.frames.clear()
    scene.say(want(2))
    [(_, frame)] = scene.frames
    assert frame.positions == [(2, 9, 1), (50, 5, 2)]
    assert len(frame.elements) == 14


def test_needed_position_is_computed_before_all_others(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 10, 1), (20, 10, 1), (40, 10, 1)))
    scene.say(want(20))
    assert scene.ask() == range(20, 30)
    scene.say(want(41))
    scene.produce()
    assert scene.ask() == range(41, 50)
    assert scene.places() == [0]


def test_needed_position_inside_a_range_cuts_it(scene: Scene):
    scene.say(want(0, (0, 100, 3)))
    scene.say(want(50))
    assert scene.ask() == range(51, 52)
    scene.produce()
    assert scene.ask() == range(54, 129, 3)


def test_only_positions_before_the_limit_are_sent(scene: Scene):
    scene.say(want(0, (0, 30, 1), limit=10))
    scene.compute()
    assert scene.places() == list(range(10))
    scene.say(want(5, limit=12))
    assert scene.places() == list(range(12))


def test_needed_position_passes_both_limits(scene: Scene):
    scene.say(want(0, (0, 30, 1), limit=0, nbytes=0))
    scene.compute()
    assert scene.places() == [0]
    for needed in range(1, 30):
        scene.say(want(needed, limit=0, nbytes=0))
        assert scene.places() == list(range(needed + 1))


def test_unread_bytes_are_those_of_sent_positions_from_the_needed_one_on(scene: Scene):
    scene.say(want(0, (0, 60, 1), nbytes=200))
    scene.compute()
    assert len(scene.places()) == 20
    assert scene.task.readers[40].kept_bytes == 200
    scene.say(want(20, nbytes=200))
    assert len(scene.places()) == 40


def test_worker_bounds_the_bytes_of_a_client_that_grants_more():
    scene = Scene(buffer_bytes=500)
    scene.connect()
    scene.say(want(0, (0, 900, 1)))
    scene.compute()
    assert 500 <= scene.task.readers[40].kept_bytes < 700


def test_nothing_is_kept_after_it_was_sent(scene: Scene):
    scene.say(want(0, (0, 30, 1)))
    scene.compute()
    assert scene.task.buffer.nbytes == 0
    assert scene.task.undelivered == 0


def test_passed_positions_are_dropped_wherever_they_are(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 40, 1), (100, 5, 1), limit=0))
    assert scene.ask() == range(1, 26)
    scene.produce(10)  # the needed one is sent, 9 are computed, 15 are in the pipeline
    assert scene.places() == [0, 1]
    scene.say(want(30, limit=0))
    assert scene.task.buffer.nbytes == 0
    scene.produce()  # they come too late
    assert scene.task.buffer.nbytes == 0
    scene.compute()
    assert scene.places() == [0, 1, 30]


def test_cancelled_positions_are_dropped_wherever_they_are(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 40, 1), limit=0))
    scene.ask()
    scene.produce(10)
    scene.say(want(1, limit=0, cancelled=((5, 10, 1), (20, 15, 1))))
    scene.compute()
    scene.say(want(1))
    assert scene.places() == [0, *range(1, 5), *range(15, 20), *range(35, 41)]


def test_cancelled_positions_may_be_wanted_again(scene: Scene):
    scene.say(want(0, (0, 10, 1)))
    scene.say(want(0, (0, 10, 1), cancelled=((0, 10, 1),)))
    scene.compute()
    assert scene.places() == list(range(10))


def test_error_occupies_its_position(scene: Scene):
    scene.say(want(0, (0, 5, 1)))
    scene.ask()
    scene.produce()
    scene.ask()
    scene.produce(1)
    scene.fail()
    scene.produce()
    error = ErrorRecord("UserFunctionError", "no")
    assert scene.got[1] == [(0, 0), (1, 10), (2, error), (3, 30), (4, 40)]


def test_errors_at_limits_wait_and_pass_as_elements_do(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 4, 1), limit=2))
    scene.ask()
    scene.produce(1)
    scene.fail()
    scene.produce()
    assert [place for place, _ in scene.got[1]] == [0, 1]
    scene.say(want(2, limit=0))
    assert [place for place, _ in scene.got[1]] == [0, 1, 2]


def test_clients_take_turns(scene: Scene):
    _measured(scene)
    scene.connect(2, client=41)
    scene.say(want(0, (100, 60, 1)))
    scene.say(want(0, (300, 60, 1)), 2)
    turns = [scene.ask() for _ in range(4)]
    assert turns == [range(100, 125), range(300, 325), range(125, 150), range(325, 350)]


def test_two_clients_get_the_same_positions_computed_once(scene: Scene):
    _measured(scene)
    scene.connect(2, client=41)
    scene.say(want(1, (1, 10, 1)))
    scene.say(want(1, (1, 10, 1)), 2)
    scene.compute()
    assert scene.places(1) == list(range(11))
    assert scene.places(2) == list(range(1, 11))
    assert scene.task.computed.elements == 11
    assert all(frame.shared for connection, frame in scene.frames if connection == 2)


def test_client_that_does_not_read_leaves_room_for_another():
    scene = Scene()
    scene.connect(1)
    scene.connect(2, client=41)
    scene.say(want(0, (0, 500, 1), limit=1))
    scene.compute()
    assert scene.places(1) == [0]
    for needed in range(500, 1000, 20):
        scene.say(want(needed, (needed, 20, 1)), 2)
        scene.compute()
    assert scene.places(2) == list(range(500, 1000))
    assert scene.task.buffer.nbytes <= BUFFER_BYTES * 3 / 4


def test_buffer_is_bounded_and_a_needed_position_passes():
    scene = Scene()
    for client in range(4):
        scene.connect(client, client=client)
        scene.say(want(client * 250, (client * 250, 250, 1), limit=0), client)
    scene.compute()
    assert scene.task.buffer.nbytes <= BUFFER_BYTES + BUFFER_BYTES // 4
    most = 0
    for needed in range(250):
        for client in range(4):
            scene.say(want(client * 250 + needed, limit=0), client)
            scene.compute()
            most = max(most, scene.task.buffer.nbytes)
    for client in range(4):
        assert scene.places(client) == list(range(client * 250, client * 250 + 250))
    assert most <= 2 * BUFFER_BYTES


def test_pipeline_that_waits_for_room_goes_on_for_a_needed_position(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 25, 1), (101, 25, 1), (201, 100, 1), limit=0))
    while scene.ask() is not None:
        scene.produce()
    assert scene.task.buffer.nbytes >= BUFFER_BYTES
    assert not scene.worker.may_produce(TASK)
    said = scene.say(want(1, (900, 5, 1), limit=0))
    assert a.Produce(TASK) not in said
    said = scene.say(want(900, limit=0))
    assert a.Produce(TASK) in said
    assert scene.turns == [range(900, 905)]


def test_range_that_moved_passes_later_ones_that_fill_the_buffer(scene: Scene):
    _measured(scene)
    scene.say(want(1, (500, 400, 1), limit=0))
    while scene.ask() is not None:
        scene.produce()
    assert scene.task.buffer.nbytes >= BUFFER_BYTES
    assert not scene.worker.may_produce(TASK)
    said = scene.say(want(1, (100, 30, 1), (1, 10, 1), limit=0))  # another worker had 1 to 10
    assert a.Produce(TASK) in said
    assert scene.turns == [range(1, 11)]
    assert scene.worker.may_produce(TASK)
    assert not scene.produce()
    assert scene.places() == [0, 1]
    assert scene.ask() is None


def test_needed_position_of_one_client_is_before_others_of_another(scene: Scene):
    _measured(scene)
    scene.connect(2, client=41)
    scene.say(want(0, (100, 60, 1)))
    scene.say(want(300, (300, 60, 1)), 2)
    assert scene.ask() == range(300, 325)


def test_a_client_that_is_far_ahead_gets_what_it_needs(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 200, 1)))
    scene.ask()
    scene.say(want(900, (900, 50, 1)))
    scene.compute()
    assert scene.places() == [0, *range(900, 950)]


def test_new_connection_forgets_what_the_old_one_wanted(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 40, 1), limit=0))
    scene.ask()
    scene.produce(10)
    scene.connect(2, attempt=2)
    assert scene.byes == {1: "UnavailableError"}
    scene.compute()
    assert scene.places(2) == []
    assert scene.task.buffer.nbytes == 0
    scene.say(want(1, (1, 40, 1)), 2)
    scene.compute()
    assert scene.places(2) == list(range(1, 41))


def test_positions_in_the_pipeline_serve_the_next_connection(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 20, 1)))
    scene.ask()
    scene.do(scene.worker.client_lost(1))
    scene.connect(2, attempt=2)
    scene.say(want(1, (1, 20, 1)), 2)
    scene.produce()
    assert scene.ask() is None
    assert scene.places(2) == list(range(1, 21))


def test_lost_connection_makes_room_for_others(scene: Scene):
    scene.say(want(0, (0, 500, 1), limit=1))
    scene.connect(2, client=41)
    while scene.ask() is not None:
        scene.produce()
    scene.say(want(0, (600, 100, 1), limit=0), 2)
    while scene.ask() is not None:
        scene.produce()
    assert not scene.worker.may_produce(TASK)
    said = scene.do(scene.worker.client_lost(1))
    assert a.Produce(TASK) in said
    assert scene.turns or scene.ask() is not None


def test_frames_are_numbered_from_the_one_that_a_client_asks_for(scene: Scene):
    scene.say(want(0, (0, 3, 1)))
    scene.compute()
    assert [frame.number for _, frame in scene.frames] == [0, 1]
    hello = msgspec.structs.replace(_hello(attempt=2), next_frame=7)
    said = scene.say(hello, 2)
    assert f.Welcome(1, "here:1", BUFFER_BYTES, first_frame=7) in [
        x.message for x in said if isinstance(x, a.SendToClient)
    ]
    scene.say(want(3, (3, 1, 1)), 2)
    scene.compute()
    assert scene.frames[-1][1].number == 7


def _hello(attempt: int) -> f.Hello:
    return f.Hello(1, 1, 40, TASK, 0, attempt=attempt, key=reader_key(b"", 40))


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([(LENGTH, 1, 1)], r"must be in \[0, 1000\)"),
        ([(LENGTH - 1, 2, 1)], "count 2"),
        ([(0, 2, LENGTH)], "step 1000"),
        ([(1 << 63, 1 << 63, 1 << 63)], "positions must be"),
        ([(0, 1 << 64, 1)], "positions must be"),
        ([(5, 0, 1)], "at least one"),
        ([(5, 2, 0)], "a step of at least 1, got first 5, count 2, step 0"),
        ([(5, 1, 0)], "step 0"),
        ([(-1, 2, 1)], "first -1"),
        ([(0, 2, -1)], "step -1"),
        ([(0, 10, 1), (9, 1, 1)], "wanted twice"),
        ([(0, 10, 6), (3, 10, 5)], "wanted twice"),
        ([(k, 1, 1) for k in range(MAX_RANGES)] * 1000, "at most 1024 ranges"),
        ([(0, 1, 1)] * 1_000_000, "at most 1024 ranges at a time, got 1000000"),
    ],
)
def test_wants_that_are_not_valid_close_their_connection_only(scene, ranges, message):
    scene.connect(2, client=41)
    scene.say(want(0, (0, 3, 1)), 2)
    said = scene.say(want(0, *ranges))
    bye = next(x.message for x in said if isinstance(x, a.SendToClient))
    assert isinstance(bye, f.Bye)
    assert bye.error is not None
    assert bye.error.code == "InvalidArgumentError"
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(bye.error.message)
    assert a.CloseConnection(1) in said
    scene.compute()
    assert scene.places(2) == [0, 1, 2]
    assert scene.places(1) == []
    scene.connect(3, attempt=2)
    scene.say(want(0, (0, 1, 1)), 3)
    scene.compute()
    assert scene.places(3) == [0]


def test_more_ranges_than_allowed_in_several_messages_are_refused(scene: Scene):
    scene.say(want(0, *[(k, 1, 1) for k in range(900)]))
    assert not scene.byes
    scene.say(want(0, *[(900 + k, 1, 1) for k in range(100)]))
    scene.say(want(0, cancelled=((0, 1000, 1),)))
    scene.say(want(0, *[(k, 1, 1) for k in range(1000)]))
    assert not scene.byes
    wide = Scene(length=BIG)
    wide.connect()
    wide.say(want(0, *[(k, 1, 1) for k in range(1000)]))
    wide.say(want(0, *[(1000 + k, 1, 1) for k in range(25)]))
    assert wide.byes == {1: "InvalidArgumentError"}


def test_computed_positions_cannot_be_wanted_again(scene: Scene):
    scene.say(want(0, (0, 5, 1), limit=0))
    scene.compute()
    scene.say(want(0, (3, 1, 1)))
    assert scene.byes == {1: "InvalidArgumentError"}


def test_cancelling_with_another_step_closes_the_connection(scene: Scene):
    scene.say(want(0, (0, 50, 2)))
    scene.say(want(0, cancelled=((0, 10, 4),)))
    assert scene.byes == {1: "InvalidArgumentError"}


def test_cancelling_unknown_positions_has_no_effect(scene: Scene):
    scene.say(want(0, (0, 5, 1), cancelled=((600, 10, 1),)))
    scene.compute()
    assert scene.places() == list(range(5))


def test_credit_of_a_client_by_position_closes_its_connection(scene: Scene):
    scene.say(f.Credit(0, 100, 100))
    assert scene.byes == {1: "InvalidArgumentError"}
    assert TASK in scene.worker.tasks


def test_want_of_a_client_of_another_task_closes_its_connection(scene: Scene):
    other = msgspec.structs.replace(start(task=21), mode=m.WholeTask())
    scene.do(scene.worker.session_message(other, 0.0))
    hello = msgspec.structs.replace(_hello(attempt=1), task_id=21)
    scene.say(hello, 2)
    scene.say(want(0, (0, 1, 1)), 2)
    assert scene.byes == {2: "InvalidArgumentError"}


def test_drained_task_computes_no_more_and_sends_clients_away(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 100, 1), limit=0))
    scene.ask()
    scene.produce(10)
    scene.say(want(2, limit=0))
    said = scene.do(scene.worker.drain(0.0))
    assert a.ClosePipeline(TASK) in said
    assert scene.byes == {1: "UnavailableError"}
    computed = m.TaskReport(11, 110)
    assert scene.progress() == [m.TaskProgress(TASK, delivered=True, computed=computed)]
    assert scene.worker.drained
    assert scene.turns
    scene.produce()  # the pipeline had begun it
    scene.connect(2, attempt=2)
    assert scene.byes[2] == "UnavailableError"
    scene.connect(3, client=41)
    assert scene.byes[3] == "UnavailableError"
    scene.do(scene.worker.leave())
    assert scene.said == [
        a.SendToDispatcher(m.WorkerLeave({TASK: 0}, {TASK: m.TaskReport(11, 110)}))
    ]


def test_task_is_not_delivered_while_it_can_be_read(scene: Scene):
    scene.say(want(0, (0, 10, 1)))
    scene.compute()
    assert scene.task.progress == m.TaskProgress(TASK)
    scene.say(want(LENGTH))
    assert scene.task.progress == m.TaskProgress(TASK)
    assert not any(isinstance(x, a.SendToClient) for x in scene.said)


def test_stopped_task_dismisses_clients_and_ignores_late_events(scene: Scene):
    scene.say(want(0, (0, 10, 1)))
    scene.ask()
    scene.do(scene.worker.session_message(m.TaskStop(TASK), 0.0))
    assert scene.byes == {1: "NotFoundError"}
    assert scene.do(scene.worker.need_turn(TASK)) == []
    scene.produce()
    assert scene.said == []


def test_task_of_the_same_id_after_another_journal_begins_anew(scene: Scene):
    scene.say(want(0, (0, 10, 1)))
    scene.ask()
    scene.asks = True
    scene.do(scene.worker.need_turn(TASK))
    scene.do(scene.worker.session_message(m.WorkerWelcome(1, 7, "other", 1000), 0.0))
    assert scene.byes == {1: "NotFoundError"}
    scene.do(scene.worker.session_message(start(), 0.0))
    scene.turns, scene.asks = [], False
    scene.connect(2)
    scene.say(want(5, (5, 1, 1)), 2)
    assert not scene.turns  # nobody has asked
    assert scene.ask() == range(5, 6)
    scene.produce()
    assert scene.places(2) == [5]


def test_client_that_closes_is_forgotten(scene: Scene):
    _measured(scene)
    scene.say(want(1, (1, 100, 1), limit=0))
    scene.ask()
    scene.produce(10)
    scene.say(f.GiveBack(0, 0))
    assert scene.task.readers == {}
    assert scene.task.buffer.nbytes == 0
    scene.produce()
    assert scene.ask() is None


@pytest.mark.parametrize("consumed", [None, (0, 1)])
def test_released_client_loses_nothing(scene: Scene, consumed):
    scene.say(want(0, (0, 10, 1)))
    scene.compute()
    scene.do(scene.worker.session_message(m.ClientReleased(TASK, 40, consumed), 0.0))
    assert scene.byes == {1: "NotFoundError"}
    assert scene.task.dropped == 0
    assert scene.task.buffer.nbytes == 0
    assert scene.ask() is None


def test_reports_and_counts_are_sent_as_for_other_tasks(scene: Scene):
    scene.say(want(0, (0, 3, 1)))
    scene.do(scene.worker.counted(TASK, {"errors_ignored": 2}))
    scene.compute()
    scene.do(scene.worker.measured(TASK, TaskEvidence(seconds=2.0)))
    sent = [x.message for x in scene.said if isinstance(x, a.SendToClient)]
    [report] = [x for x in sent if isinstance(x, f.Report)]
    evidence = decode(report.evidence)
    assert evidence is not None
    assert (evidence.elements, evidence.bytes) == (3, 30)
    assert report.chunks == 2


def test_metered_client_needs_no_credit(scene: Scene):
    scene.say(msgspec.structs.replace(_hello(attempt=2), metered=True), 2)
    scene.say(want(0, (0, 10, 1), limit=5), 2)
    scene.compute()
    assert scene.places(2) == list(range(5))
    assert not any(isinstance(x, f.Ready) for x in scene.messages)


def test_endless_epoch_has_positions_beyond_any_array():
    scene = Scene(length=1 << 62)
    scene.connect()
    far = (1 << 62) - 10
    scene.say(want(far, (far, 10, 1), limit=1 << 62))
    scene.compute()
    assert scene.places() == list(range(far, far + 10))


class _RandomRun:
    """Clients that read strides of an epoch, with cuts, losses and any speed of all."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scene = Scene(element_bytes=self.rng.choice([1, 10, 300]))
        self.clients = self.rng.randint(1, 4)
        self.needed = list(range(self.clients))
        self.asked = list(range(self.clients))
        self.connections = [0] * self.clients
        self.attempts = 0

    def run(self) -> None:
        for client in range(self.clients):
            self.reconnect(client)
        for _ in range(100_000):
            if all(each >= LENGTH for each in self.needed):
                return
            self.step(self.rng.randrange(self.clients))
        raise AssertionError(f"a client waits for ever: {self.needed}")

    def reconnect(self, client: int) -> None:
        self.attempts += 1
        self.connections[client] = self.attempts
        self.scene.connect(self.attempts, client=client, attempt=self.attempts)
        self.asked[client] = self.needed[client]

    def step(self, client: int) -> None:
        scene, event = self.scene, self.rng.random()
        if event < 0.01:
            scene.do(scene.worker.client_lost(self.connections[client]))
            self.reconnect(client)
        elif event < 0.4:
            self.say(client)
        elif event < 0.7 and scene.turns:
            if not scene.task.full:
                scene.produce(self.rng.choice([None, 1, 5]))
        elif len(scene.turns) < 3:
            scene.ask()
        assert not scene.byes.keys() & set(self.connections)
        # The buffer, and a turn for each client that needs a position and each one begun.
        turn = max(BUFFER_BYTES // 4, scene.element_bytes)
        assert scene.task.buffer.nbytes <= BUFFER_BYTES + (self.clients + 3) * turn

    def say(self, client: int) -> None:
        connection = self.connections[client]
        got = {place for place, _ in self.scene.got.get(connection, [])}
        for _ in range(self.rng.randint(0, 30)):
            if self.needed[client] in got:
                self.needed[client] += self.clients
        needed, first = self.needed[client], self.asked[client]
        left = len(range(first, LENGTH, self.clients))
        ranges: list[f.Positions] = []
        if left and first < needed + 200:
            ranges.append((first, min(self.rng.randint(1, 40), left), self.clients))
            self.asked[client] += ranges[0][1] * self.clients
        limit = needed + self.rng.choice([0, 10, 1000])
        nbytes = self.rng.choice([0, 100, 10_000])
        self.scene.say(want(needed, *ranges, limit=limit, nbytes=nbytes), connection)


@pytest.mark.parametrize("part", range(4))
def test_random_clients_get_each_position_once_and_in_bounds(part: int):
    for seed in range(part, 60, 4):
        run = _RandomRun(seed)
        run.run()
        for connection in run.scene.got:
            places = run.scene.places(connection)
            assert len(places) == len(set(places)), f"seed {seed}"
        for client in range(run.clients):
            stride = {*range(client, LENGTH, run.clients)}
            assert stride <= {x for n in run.scene.got for x in run.scene.places(n)}
