"""Measurements of stages: what is counted, and that nothing is kept by it."""

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.measure import recording as module
from stoker.dataset.streams.measure.bottleneck import Bottleneck
from stoker.dataset.streams.measure.recording import Meters, OpenedSampler, Recording
from stoker.dataset.streams.measure.sampling import Gauge, Section, Totals
from stoker.dataset.streams.measure.stage_report import FIRST_NESTED, StageReport
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context

SECONDS = 0.005
"""The time of a slow call: it is so long that each is measured."""


def slow(x: Any) -> Any:
    time.sleep(SECONDS)
    return x


def opened(dataset: Dataset) -> tuple[Stream, Recording]:
    context = Context(make_dataset=Dataset)
    return open_stream(dataset.node, context), context.meters.recording


def reports(dataset: Dataset) -> list[StageReport]:
    """Read a dataset in chunks, as workers do, and return the reports of its stages."""
    stream, recording = opened(dataset)
    section = Section()
    while section.read(stream, 8192, 4 << 20):
        pass
    stream.close()
    return recording.reports()


def test_stages_count_their_elements_and_bytes() -> None:
    [source, mapping, batches] = reports(Dataset.range(40).map(slow).batch(4))
    assert [source.kind, mapping.kind, batches.kind] == ["range", "map", "batch"]
    assert [source.elements, mapping.elements, batches.elements] == [40, 40, 10]
    assert [source.inputs, mapping.inputs, batches.inputs] == [[], [0], [1]]
    assert mapping.function == "slow"
    assert mapping.site.startswith("tests/dataset/streams/measure/test_meters.py:")
    assert batches.bytes >= 40 * 8


def test_time_counts_where_it_is_spent() -> None:
    [_, mapping, batches] = reports(Dataset.range(40).map(slow).batch(4))
    assert mapping.busy >= 40 * SECONDS
    assert mapping.get_wait >= mapping.busy
    assert batches.get_wait >= mapping.get_wait
    assert 0.8 * SECONDS < mapping.p50 <= mapping.p99


def test_a_fused_map_and_batch_are_two_stages() -> None:
    found = reports(Dataset.range(40).map(slow, num_parallel_calls=2).batch(4))
    assert [report.kind for report in found] == ["range", "map", "batch"]
    assert found[1].parallel == 2
    assert found[1].occupancy is not None
    assert found[1].busy >= 40 * SECONDS


def test_a_node_that_only_forwards_is_no_stage() -> None:
    found = reports(Dataset.range(40).prefetch(0).map(slow))
    assert [(report.kind, report.inputs) for report in found] == [("range", []), ("map", [0])]


def test_epochs_of_a_repeat_are_one_stage() -> None:
    found = reports(Dataset.range(10).map(slow).repeat(3))
    assert [report.elements for report in found] == [30, 30, 30]


@pytest.mark.parametrize("num_parallel_calls", [None, 2])
def test_datasets_of_a_function_are_stages_once(num_parallel_calls: int | None) -> None:
    dataset = Dataset.range(6).interleave(
        lambda _: Dataset.range(5).map(slow),
        cycle_length=2,
        num_parallel_calls=num_parallel_calls,
    )
    found = reports(dataset)
    assert [report.number for report in found] == [0, 1, FIRST_NESTED, FIRST_NESTED + 1]
    assert found[1].inputs == [0, FIRST_NESTED + 1]
    assert found[3].inputs == [FIRST_NESTED]
    assert (found[1].elements, found[3].elements) == (30, 30)
    assert found[3].busy >= 30 * SECONDS


def test_thousands_of_small_datasets_are_sampled() -> None:
    dataset = Dataset.range(3000).flat_map(lambda _: Dataset.range(4))
    iterator = iter(dataset)
    assert sum(1 for _ in iterator) == 12_000
    [_, outer, inner] = iterator.stats()["stages"]
    assert (outer["elements"], inner["elements"]) == (12_000, 12_000)
    assert inner["estimated"]


def test_one_in_many_small_datasets_counts_for_the_others() -> None:
    sampler = OpenedSampler(Meters())
    meters = [sampler.next() for _ in range(1000)]
    measured = [each for each in meters if each.weight]
    assert 8 <= len(measured) < 20


def test_calls_in_quick_succession_are_estimated() -> None:
    iterator = iter(Dataset.range(200_000).map(lambda x: x))
    assert sum(1 for _ in iterator) == 200_000
    stats = iterator.stats()
    assert [stage["elements"] for stage in stats["stages"]] == [200_000, 200_000]
    assert all(stage["estimated"] for stage in stats["stages"])
    assert 0 < stats["waited"] <= stats["seconds"]


def test_a_stream_that_is_not_measured_is_called_directly() -> None:
    stream, _ = opened(Dataset.range(100_000).map(lambda x: x))
    section = Section()
    while section.weight == 1:
        section.read(stream, 1, 1)
    streams = [each for each in _streams_of(stream) if each.gauge is not None]
    assert len(streams) == 2
    assert all("next_chunk" not in each.__dict__ for each in streams)
    stream.close()


def _streams_of(stream: Stream) -> Iterator[Stream]:
    yield stream
    inner = getattr(stream, "_input", None)
    if inner is not None:
        yield from _streams_of(inner)


def test_a_closed_stream_is_in_no_reference_cycle() -> None:
    stream, meters = opened(Dataset.range(40).map(slow).shuffle(10).batch(4))
    Section().read(stream, 1, 1)
    dead = weakref.ref(stream)
    gc.disable()
    try:
        stream.close()
        del stream
        assert dead() is None
    finally:
        gc.enable()
    assert meters.reports()[0].elements > 0


def test_reports_outlive_the_iterator_and_keep_no_element() -> None:
    class Element:
        pass

    dataset = Dataset.range(3).map(lambda _: (slow(0), Element())[1])
    iterator = iter(dataset)
    dead = weakref.ref(next(iterator))
    assert [type(next(iterator)) for _ in range(2)] == [Element, Element]
    del iterator
    gc.collect()
    assert dead() is None
    line = next(line for line in str(dataset.explain()).splitlines() if line.startswith("map"))
    assert line.split("UnknownSpec()")[1].split()[0] == "3"


def test_the_root_of_a_nested_dataset_is_the_only_input_of_its_stage() -> None:
    def dataset(i: int) -> Dataset:
        return Dataset.range(5).map(slow).repeat(2) if i % 2 else Dataset.range(3).map(slow)

    found = {each.number: each for each in reports(Dataset.range(4).flat_map(dataset))}
    assert [found[each].kind for each in found[1].inputs] == ["range", "map", "repeat"]
    [repeat] = [each for each in found.values() if each.kind == "repeat"]
    assert [found[each].kind for each in repeat.inputs] == ["map"]
    assert repeat.elements == 20


def test_a_service_of_an_unmeasured_dataset_is_known() -> None:
    node = Dataset.range(3).node
    meters = Meters().weighted(0)
    service: Any = object()
    meters.add_service(node, {node: 0}, service)
    assert meters.recording.services[0] is service


def test_nested_datasets_know_who_judges_the_pipeline() -> None:
    node = Dataset.range(3).node
    meters = Meters()
    nested = meters.nested(node, {node: 0})
    found = Bottleneck("trainer", "The trainer limits training.")
    meters.recording.judge = lambda: found
    assert nested.recording.judge() is found


def test_streams_may_be_closed_while_they_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(make_dataset=Dataset)
    streams = [open_stream(Dataset.range(3).node, context) for _ in range(20)]
    add_to = Gauge.add_to

    def closing(self: Gauge, totals: Totals) -> None:
        while streams:  # as a collection of garbage in this thread does
            streams.pop().close()
        add_to(self, totals)

    monkeypatch.setattr(Gauge, "add_to", closing)
    assert [report.kind for report in context.meters.recording.reports()] == ["range"]


def test_a_forked_child_reports_though_the_lock_was_held() -> None:
    stream, recording = opened(Dataset.range(3))
    Section().read(stream, 3, 100)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with module._lock:
            held.set()
            done.wait()

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(10)
        stream.close()
        os._exit(recording.reports()[0].elements)
    done.set()
    holding.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_an_error_takes_time_and_is_no_element() -> None:
    def fail(x: int) -> int:
        slow(x)
        if x % 2:
            raise ValueError(x)
        return x

    stream, meters = opened(Dataset.range(20).map(fail))
    section = Section()
    errors = 0
    for _ in range(20):
        try:
            section.read(stream, 1, 1)
        except ValueError:
            errors += 1
    assert errors == 10
    [_, mapping] = meters.reports()
    assert mapping.elements == 10
    assert mapping.get_wait >= 20 * SECONDS
    stream.close()
