"""Pipelines of tasks by position, with the worker's logic and one client in this thread."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.dataset.positions.position_stream import PositionStream, open_positions
from stoker.dataset.positions.shared_rows import SharedRows
from stoker.dataset.streams.calls.call_recorder import CallRecorder
from stoker.dataset.tree.node import Node
from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.task_evidence import TaskEvidence
from stoker.service.worker import actions as a
from stoker.service.worker.logic import Worker
from stoker.service.worker.pipelines import turn_pipeline
from stoker.service.worker.pipelines.pipeline import Arguments
from stoker.service.worker.pipelines.turn_pipeline import TurnPipeline
from stoker.wire import frames as f
from tests.service.worker.wants.scene import TASK, Scene, start, want
from tests.serving import eventually


class _Host(Scene):
    """The logic of a worker and the pipeline of its task; a client is on connection 1."""

    address = "host:1"
    chunk_bytes = 1 << 20
    calls: CallRecorder | None = None

    def __init__(self, dataset: stoker.Dataset, length: int, buffer_bytes: int = 1 << 26) -> None:
        self.lock = threading.RLock()
        self.pipeline: TurnPipeline | None = None
        self.node, self.options = dataset.node, dataset.options()
        self.failures: list[ErrorRecord] = []
        self.loads = 0
        super().__init__(length, buffer_bytes)
        self.start = start(length)
        self.connect()

    def run(self) -> None:
        """Start the pipeline."""
        self.pipeline = object.__new__(TurnPipeline)  # known before its thread asks for turns
        self.pipeline.__init__(self.start, self, SharedRows())  # type: ignore[misc]

    def do(self, actions: list[a.Action]) -> list[a.Action]:
        for action in actions:
            if isinstance(action, a.SendToClient):
                self._receive(action.connection, action.message)
            elif isinstance(action, a.GiveTurn):
                self.turns.append(action.turn)
                assert self.pipeline is not None
                self.pipeline.give_turn(action.turn)
            elif isinstance(action, a.Produce):
                assert self.pipeline is not None
                self.pipeline.resume()
        return actions

    def say(self, message: f.Message, connection: int = 1) -> list[a.Action]:
        with self.lock:
            return super().say(message, connection)

    def load(
        self, dataset_id: str, closed: threading.Event | None = None
    ) -> tuple[Node, stoker.Options]:
        self.loads += 1
        return self.node, self.options

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.empty(shape, dtype)

    def produced(self, task_id: int, chunk: Any) -> bool:
        with self.lock:
            self.do(self.worker.produced(task_id, chunk))
            return self.worker.may_produce(task_id)

    def call(
        self, method: Callable[[Worker, *Arguments], list[a.Action]], *arguments: *Arguments
    ) -> None:
        with self.lock:
            self.do(method(self.worker, *arguments))

    def failed(self, start: m.TaskStart, error: ErrorRecord) -> None:
        self.failures.append(error)

    def need_turn(self, task_id: int) -> None:
        self.call(Worker.need_turn, task_id)

    def need_split(self, task_id: int, source: int, source_epoch: int) -> None:
        raise AssertionError("a task by position reads no splits")

    def need_files(self, task_id: int, source: int, start: int) -> None:
        raise AssertionError("a task by position reads no shard")

    def found(self, connection: int = 1) -> dict[int, Any]:
        """Return what has arrived by position; nothing arrives twice."""
        with self.lock:
            got = self.got.get(connection, [])
        assert len({place for place, _ in got}) == len(got)
        return {place: getattr(x, "exception", x) for place, x in got}

    def read(self, *positions: int, connection: int = 1) -> list[Any]:
        """Wait until these positions have arrived; return what is there."""
        assert eventually(lambda: set(positions) <= self.found(connection).keys()), self.found()
        found = self.found(connection)
        return [found[position] for position in positions]


@pytest.fixture
def hosts() -> Iterator[Callable[..., _Host]]:
    made: list[_Host] = []

    def make(dataset: stoker.Dataset, length: int = 1000, **options: Any) -> _Host:
        made.append(_Host(dataset, length, **options))
        return made[-1]

    yield make
    for host in made:
        if host.pipeline is not None:
            host.pipeline.close()
            host.pipeline.join(5)
            assert not host.pipeline._thread.is_alive()


def _double(x: int) -> int:
    return 2 * x


PIPELINES = {
    "range": lambda: stoker.Dataset.range(1000),
    "map": lambda: stoker.Dataset.range(1000).map(_double),
    "parallel map": lambda: stoker.Dataset.range(1000).map(_double, num_parallel_calls=4),
    "shuffled": lambda: stoker.Dataset.range(1000).shuffle(100, seed=3).map(_double),
    "prefetch": lambda: stoker.Dataset.range(1000).map(_double).prefetch(8),
}


@pytest.mark.parametrize("kind", PIPELINES)
def test_wanted_positions_are_those_of_the_local_epoch(hosts, kind):
    dataset = PIPELINES[kind]()
    local = list(dataset)
    host = hosts(dataset)
    host.run()
    host.say(want(0, (10, 20, 3), (900, 100, 1)))
    assert host.read(*range(10, 70, 3)) == local[10:70:3]
    host.say(want(500, (500, 400, 1)))
    assert host.read(*range(500, 1000)) == local[500:]


def test_batches_up_to_the_short_last_one_are_read_in_any_order(hosts):
    dataset = stoker.Dataset.range(1000).map(_double).batch(64)
    local = [list(batch) for batch in dataset]
    host = hosts(dataset, 16)
    host.run()
    host.say(want(0, (14, 2, 1), (3, 4, 2), (0, 3, 1)))
    order = [14, 15, 3, 5, 7, 9, 0, 1, 2]
    assert [list(x) for x in host.read(*order)] == [local[k] for k in order]
    host.say(want(0, (10, 1, 1)))  # after the end of the epoch was computed
    [batch] = host.read(10)
    assert list(batch) == local[10]


def test_a_want_before_the_dataset_is_loaded_is_computed_then(hosts):
    host = hosts(stoker.Dataset.range(1000))
    host.say(want(7, (7, 3, 1)))
    assert not host.turns
    host.run()
    assert host.read(7, 8, 9) == [7, 8, 9]


def test_error_has_its_position_and_others_follow(hosts):
    def fail(x):
        if x % 10 == 3:
            raise ValueError(x)
        return x

    host = hosts(stoker.Dataset.range(1000).map(fail))
    host.run()
    host.say(want(0, (100, 20, 1)))
    expected = ["ValueError" if k % 10 == 3 else k for k in range(100, 120)]
    assert host.read(*range(100, 120)) == expected
    records = [x.error for _, x in host.frames if x.error is not None]
    assert [record.element for record in records] == [103, 113]
    assert [record.worker for record in host.failures] == ["host:1"] * 2


def test_element_that_cannot_be_encoded_is_an_error_at_its_position(hosts):
    def make(x):
        return object() if x == 4 else x

    host = hosts(stoker.Dataset.range(20).map(make), 20)
    host.run()
    host.say(want(0, (0, 10, 2)))
    host.read(*range(0, 20, 2))
    found = host.found()
    error = found.pop(4)
    assert isinstance(error, str) or error.code == "InvalidArgumentError"
    assert found == {k: k for k in (0, 2, 6, 8, 10, 12, 14, 16, 18)}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[PositionStream]:
    """Return the streams that pipelines open."""
    streams: list[PositionStream] = []

    def open_counted(*arguments: Any) -> PositionStream:
        streams.append(open_positions(*arguments))
        return streams[-1]

    monkeypatch.setattr(turn_pipeline, "open_positions", open_counted)
    return streams


def test_stream_is_opened_again_after_sys_exit_only(hosts, opened):
    def leave(x):
        if x == 30:
            sys.exit(3)
        return x // (x - 20)

    host = hosts(stoker.Dataset.range(1000).map(leave))
    host.run()
    host.say(want(0, (0, 1, 1)))
    host.read(0)
    host.say(want(1, (1, 25, 1)))
    assert host.read(20) == ["ZeroDivisionError"]
    assert len(opened) == 1
    host.say(want(26, (26, 20, 1)))
    assert host.read(30, 45) == ["SystemExit", 45 // 25]
    assert len(opened) == 3  # to find the element, and to go on after it


def test_stream_that_lost_count_of_positions_is_opened_again(hosts, opened, monkeypatch):
    host = hosts(stoker.Dataset.range(1000))
    host.run()
    host.say(want(0, (0, 1, 1)))
    host.read(0)
    failing = opened[0]

    def fail(*_: Any) -> Any:
        assert failing._turns.wait()
        failing.position = 77
        raise OSError("the file is away")

    monkeypatch.setattr(failing, "next_chunk", fail)
    host.say(want(1, (1, 1, 1)))  # for the call that waits
    host.say(want(1, (5, 10, 1)))
    host.read(*range(5, 15))
    found = host.found()
    assert [k for k, x in found.items() if x == "OSError"] == [5]
    assert [found[k] for k in range(6, 15)] == list(range(6, 15))
    assert len(opened) == 2


def test_error_before_a_turn_occupies_one_position(hosts, opened, monkeypatch):
    host = hosts(stoker.Dataset.range(1000))
    host.run()
    host.say(want(0, (0, 1, 1)))
    host.read(0)

    def fail(*_: Any) -> Any:
        raise OSError("the file is away")

    monkeypatch.setattr(opened[0], "next_chunk", fail)
    host.say(want(1, (1, 1, 1)))  # for the call that waits
    host.say(want(1, (5, 10, 1)))
    assert host.read(1, *range(5, 15)) == [1, "OSError", *range(6, 15)]


@pytest.mark.parametrize("parallel", [None, 4])
def test_sys_exit_is_an_error_at_its_position_and_others_follow(hosts, parallel):
    def leave(x):
        if x % 7 == 5:
            sys.exit(3)
        return x

    dataset = stoker.Dataset.range(1000).map(leave, num_parallel_calls=parallel)
    host = hosts(dataset)
    host.run()
    host.say(want(0, (0, 40, 1), (200, 10, 5)))
    wanted = [*range(40), *range(200, 250, 5)]
    assert host.read(*wanted) == ["SystemExit" if k % 7 == 5 else k for k in wanted]


def test_dataset_that_cannot_be_opened_is_an_error_at_each_wanted_position(hosts):
    class Broken(_Host):
        def load(self, dataset_id: str, closed: threading.Event | None = None) -> Any:
            self.loads += 1
            if self.loads < 4:
                raise OSError("the disk is away")
            return super().load(dataset_id, closed)

    host = Broken(stoker.Dataset.range(1000), 1000)
    host.run()
    try:
        assert eventually(lambda: host.loads == 1)
        assert not host.frames  # nobody has asked
        host.say(want(3, (3, 2, 1)))
        assert host.read(3, 4) == ["OSError", "OSError"]
        host.say(want(5, (5, 2, 1), (90, 1, 1)))
        host.read(5, 6, 90)
        host.say(want(200, (200, 5, 1)))  # the disk is back
        assert host.read(*range(200, 205))[-1] == 204
    finally:
        assert host.pipeline is not None
        host.pipeline.close()
        host.pipeline.join(5)


def test_full_buffer_stops_the_pipeline_until_a_position_is_needed(hosts):
    dataset = stoker.Dataset.range(1000).map(lambda x: np.full(1000, x, np.int64))
    host = hosts(dataset, buffer_bytes=80_000)
    host.run()
    host.say(want(0, (0, 500, 1), limit=0))
    assert eventually(lambda: host.worker.tasks[TASK].full)
    host.read(0)
    with host.lock:
        assert host.worker.tasks[TASK].buffer.nbytes < 150_000
    host.say(want(900, (900, 1, 1), limit=0))
    [array] = host.read(900)
    assert array[0] == 900


def test_needed_position_of_another_client_passes_a_paused_one(hosts):
    dataset = stoker.Dataset.range(1000).map(lambda x: np.full(1000, x, np.int64))
    host = hosts(dataset, buffer_bytes=80_000)
    host.run()
    host.connect(2, client=41)
    host.say(want(0, (0, 500, 1), limit=0, nbytes=0))
    host.read(0)
    for needed in range(500, 600, 10):
        host.say(want(needed, (needed, 10, 1)), 2)
        host.read(*range(needed, needed + 10), connection=2)
    assert host.found(1).keys() == {0}


@pytest.mark.parametrize("waits_for", ["turn", "room", "function"])
def test_closed_pipeline_ends(hosts, waits_for):
    running, go_on = threading.Event(), threading.Event()

    def function(x):
        if waits_for == "function":
            running.set()
            go_on.wait(10)
        return np.zeros(1000)

    host = hosts(stoker.Dataset.range(1000).map(function), buffer_bytes=20_000)
    host.run()
    if waits_for != "turn":
        host.say(want(0, (0, 500, 1), limit=0))
    if waits_for == "room":
        assert eventually(lambda: host.worker.tasks[TASK].full)
    if waits_for == "function":
        assert running.wait(5)
    host.pipeline.close()
    go_on.set()
    host.pipeline.join(5)
    assert not host.pipeline._thread.is_alive()


def test_cancelled_turn_that_runs_is_dropped_and_others_follow(hosts):
    running, go_on = threading.Event(), threading.Event()

    def function(x):
        if x == 100:
            running.set()
            go_on.wait(10)
        return x

    host = hosts(stoker.Dataset.range(1000).map(function))
    host.run()
    host.say(want(100, (100, 50, 1)))
    assert running.wait(5)
    host.say(want(300, (300, 10, 1), cancelled=((100, 50, 1),)))
    go_on.set()
    assert host.read(*range(300, 310)) == list(range(300, 310))
    assert host.found().keys() == set(range(300, 310))


def test_wait_for_a_turn_is_measured_as_waiting_for_work(hosts):
    def function(x):
        time.sleep(0.01)
        return x

    host = hosts(stoker.Dataset.range(1000).map(function))
    host.run()
    host.say(want(0, (0, 5, 1)))
    host.read(*range(5))
    assert eventually(lambda: host.pipeline.meter.times.seconds[1] > 0.05)
    evidence: TaskEvidence = host.pipeline.measure()
    assert evidence.split_wait > 0.05
    assert 0.04 < evidence.computing < evidence.seconds
    assert not evidence.ended


def test_pipeline_without_wants_reports_that_it_opens(hosts):
    opened = threading.Event()

    class Slow(_Host):
        def load(self, dataset_id: str, closed: threading.Event | None = None) -> Any:
            opened.wait(10)
            return super().load(dataset_id, closed)

    host = Slow(stoker.Dataset.range(1000), 1000)
    host.run()
    assert host.pipeline is not None
    assert host.pipeline.measure().loading is not None
    opened.set()
    host.say(want(0, (0, 1, 1)))
    host.read(0)
    assert host.pipeline.measure().loading is None
    host.pipeline.close()
    host.pipeline.join(5)


def test_scalars_travel_by_thousands(hosts):
    host = hosts(stoker.Dataset.range(100_000), 100_000)
    host.run()
    host.say(want(0, (0, 100_000, 1), limit=1 << 40))
    host.read(99_999)
    assert host.read(*range(100_000)) == list(range(100_000))
    assert len(host.frames) < 40
