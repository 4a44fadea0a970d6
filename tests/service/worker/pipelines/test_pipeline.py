"""Pipelines of tasks, with a list in place of the worker."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.dataset.streams.calls.call_recorder import CallRecorder
from stoker.dataset.tree.node import Node
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.task_evidence import TaskEvidence
from stoker.service.worker.logic import Worker
from stoker.service.worker.pipelines.pipeline import Arguments, Pipeline
from tests.serving import eventually


class _Host:
    """Accept all chunks, or `room` of them; give `splits` in order."""

    address = "host:1"
    chunk_bytes = 1 << 20
    calls: CallRecorder | None = None

    def __init__(
        self, dataset: stoker.Dataset, splits: tuple[Any, ...] = (), room: int = 1 << 30
    ) -> None:
        self.tree, self.options = encode_tree(dataset.node), dataset.options()
        self.chunks: list[Any] = []
        self.counts: list[tuple[int, dict[str, int]]] = []
        self.failures: list[tuple[int, ErrorRecord]] = []
        self.room = room
        self.ended = threading.Event()
        self.asked: list[tuple[int, int, int]] = []
        self.splits = list(splits)
        self.pipeline: Pipeline

    def load(
        self, dataset_id: str, closed: threading.Event | None = None
    ) -> tuple[Node, stoker.Options]:
        return decode_tree(self.tree), self.options

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.empty(shape, dtype)

    def produced(self, task_id: int, chunk: Any) -> bool:
        self.chunks.append(chunk)
        return len(self.chunks) < self.room

    def call(self, method: Callable[[Worker, *Arguments], Any], *arguments: *Arguments) -> None:
        getattr(self, method.__name__)(*arguments)

    def counted(self, task_id: int, counts: dict[str, int]) -> None:
        self.counts.append((len(self.chunks), counts))

    def failed(self, start: m.TaskStart, error: ErrorRecord) -> None:
        self.failures.append((start.task_id, error))

    def measured(self, task_id: int, evidence: TaskEvidence) -> None:
        self.evidence = evidence

    def exhausted(self, task_id: int) -> None:
        self.ended.set()

    def need_files(self, task_id: int, source: int, start: int) -> None:
        raise AssertionError("no task of these tests reads a shard")

    def need_turn(self, task_id: int) -> None:
        raise AssertionError("no task of these tests is read by position")

    def need_split(self, task_id: int, source: int, source_epoch: int) -> None:
        self.asked.append((task_id, source, source_epoch))
        if self.splits:
            self.pipeline.answer(source, source_epoch, self.splits.pop(0))

    @property
    def elements(self) -> list[Any]:
        return [element for chunk in self.chunks for element in chunk.elements]

    def run(self, sources: list[m.SplitSource] | None = None) -> Pipeline:
        self.pipeline = object.__new__(Pipeline)  # known before its thread asks for splits
        mode = m.WholeTask() if sources is None else m.SplitTask(sources=sources)
        self.pipeline.__init__(m.TaskStart(1, 2, "d", 3, (0,), mode), self)  # type: ignore[misc]
        return self.pipeline


def _ends(pipeline: Pipeline) -> bool:
    pipeline.join(5)
    return not pipeline._thread.is_alive()


def test_pipeline_delivers_all_elements_and_its_end():
    host = _Host(stoker.Dataset.range(20_000))
    assert _ends(host.run())
    assert host.ended.is_set()
    assert host.elements == list(range(20_000))


def test_pipeline_waits_for_room_and_continues():
    host = _Host(stoker.Dataset.range(20_000), room=1)
    pipeline = host.run()
    assert eventually(lambda: host.chunks)
    assert len(host.chunks) == 1
    assert not host.ended.is_set()
    host.room = 1 << 30
    pipeline.resume()
    assert _ends(pipeline)
    assert host.elements == list(range(20_000))


@pytest.mark.parametrize("waits_for", ["room", "split"])
def test_closed_pipeline_ends_without_reporting_its_end(waits_for):
    dataset = stoker.Dataset.range(100).repeat()
    if waits_for == "room":
        host, sources = _Host(dataset, room=1), None
    else:
        host, sources = _Host(dataset, splits=([(0, 50)],)), [m.SplitSource(0, 2, 100)]
    pipeline = host.run(sources)
    assert eventually(lambda: len(host.chunks if waits_for == "room" else host.asked) > 0)
    pipeline.close()
    assert _ends(pipeline)
    assert not host.ended.is_set()


def test_splits_are_requested_one_by_one_for_each_epoch():
    splits: tuple[Any, ...] = ([(0, 2)], [(4, 6)], [], [(2, 3)], [])
    host = _Host(stoker.Dataset.range(6).repeat(2), splits)
    assert _ends(host.run([m.SplitSource(0, 3, 6)]))
    assert host.elements == [0, 1, 4, 5, 2]
    assert host.asked == [(1, 0, 0)] * 3 + [(1, 0, 1)] * 2


def test_error_has_its_position_and_elements_follow():
    def fail(x):
        if x == 2:
            raise ValueError("two")
        return x

    host = _Host(stoker.Dataset.range(5).map(fail))
    assert _ends(host.run())
    [error] = [chunk.error for chunk in host.chunks if chunk.error is not None]
    assert (error.element, error.exception, error.worker) == (2, "ValueError", "host:1")
    assert host.elements == [0, 1, 3, 4]
    assert host.ended.is_set()


def test_sys_exit_ends_the_task_with_an_error():
    def leave(x):
        raise SystemExit(1)

    host = _Host(stoker.Dataset.range(5).map(leave))
    assert _ends(host.run())
    assert [chunk.error.exception for chunk in host.chunks] == ["SystemExit"]
    assert host.ended.is_set()


@pytest.mark.parametrize("failure", [OSError("no dispatcher"), SystemExit(1)])
def test_dataset_that_cannot_be_loaded_is_one_error(failure):
    class Broken(_Host):
        def load(self, dataset_id: str, closed: threading.Event | None = None) -> Any:
            raise failure

    host = Broken(stoker.Dataset.range(5))
    assert _ends(host.run())
    [chunk] = host.chunks
    assert type(failure).__name__ in chunk.error.message
    assert host.ended.is_set()


def test_task_seed_applies_to_unseeded_shuffles_only():
    def order(dataset: stoker.Dataset, seed: int) -> list[int]:
        host = _Host(dataset)
        host.pipeline = Pipeline(m.TaskStart(1, 2, "d", seed, (0,)), host)
        assert _ends(host.pipeline)
        return host.elements

    unseeded = stoker.Dataset.range(50).shuffle(50)
    assert order(unseeded, 1) == order(unseeded, 1) != order(unseeded, 2)
    seeded = unseeded.with_options(stoker.Options(seed=9))
    assert order(seeded, 1) == order(seeded, 2)


def test_totals_are_reported_before_later_elements():
    def function(x: int) -> float:
        return 6 / (x - 1) / (x - 3)

    host = _Host(stoker.Dataset.range(4).map(function).ignore_errors())
    host.run()
    assert _ends(host.pipeline)
    assert host.elements == [2.0, -6.0]
    assert host.counts[-1] == (len(host.chunks), {"errors_ignored": 2})  # before its end
    assert [count["errors_ignored"] for _, count in host.counts] == [1, 2]


def test_pipeline_without_totals_reports_none():
    host = _Host(stoker.Dataset.range(4))
    host.run()
    assert _ends(host.pipeline)
    assert host.counts == []


def test_a_pipeline_measures_its_waits():
    host = _Host(stoker.Dataset.range(4), room=1)
    pipeline = host.run([m.SplitSource(0, 1, 4)])
    assert eventually(lambda: pipeline.meter.times.seconds[1] > 0)
    assert eventually(lambda: host.asked)
    pipeline.answer(0, 0, [(0, 4)])
    assert eventually(lambda: pipeline.meter.put_wait.seconds() > 0)
    waited = pipeline.meter.put_wait.seconds()
    host.room, host.splits = 1 << 30, [[]]
    pipeline.resume()
    assert _ends(pipeline)
    evidence = host.evidence
    assert (evidence.ended, evidence.splits) == (True, {0: 1})
    assert waited <= evidence.put_wait < evidence.seconds
    assert 0 < evidence.split_wait < evidence.seconds
    assert evidence.computing + evidence.split_wait + evidence.put_wait <= evidence.seconds
