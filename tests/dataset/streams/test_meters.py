"""Measurements of stages: what is counted, and that nothing is kept by it."""

import gc
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.meters import Meters, OpenedSampler
from stoker.dataset.streams.stage_report import FIRST_NESTED, StageReport
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context
from tests.dataset.verbs import positions


def slow(x: Any) -> Any:
    time.sleep(0.002)
    return x


def opened(dataset: Dataset) -> tuple[Stream, Meters]:
    context = Context(make_dataset=Dataset)
    return open_stream(dataset.node, context), context.meters


def reports(dataset: Dataset) -> list[StageReport]:
    """Read a dataset in chunks, as workers do, and return the reports of its stages."""
    stream, meters = opened(dataset)
    while stream.next_chunk(8192, 4 << 20):
        pass
    stream.close()
    return meters.reports()


def test_stages_count_their_elements_and_bytes() -> None:
    [source, mapping, batches] = reports(Dataset.range(40).map(slow).batch(4))
    assert [source.kind, mapping.kind, batches.kind] == ["range", "map", "batch"]
    assert [source.elements, mapping.elements, batches.elements] == [40, 40, 10]
    assert [source.inputs, mapping.inputs, batches.inputs] == [[], [0], [1]]
    assert mapping.function == "slow"
    assert mapping.site.startswith("tests/dataset/streams/test_meters.py:")
    assert batches.bytes >= 40 * 8


def test_time_counts_where_it_is_spent() -> None:
    [source, mapping, batches] = reports(Dataset.range(40).map(slow).batch(4))
    assert mapping.busy >= 0.08
    assert mapping.get_wait >= mapping.busy
    assert batches.get_wait >= mapping.get_wait
    assert batches.busy < 0.5 * mapping.busy
    assert source.busy < 0.5 * mapping.busy
    assert 0.0015 < mapping.p50 <= mapping.p99


def test_a_fused_map_and_batch_are_two_stages() -> None:
    found = reports(Dataset.range(40).map(slow, num_parallel_calls=2).batch(4))
    assert [report.kind for report in found] == ["range", "map", "batch"]
    assert found[1].parallel == 2
    assert found[1].occupancy is not None
    assert found[1].busy >= 0.08


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
    assert found[3].busy >= 0.06
    assert found[1].busy < 0.5 * found[3].busy


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
    measured = [each for each in meters if type(each) is Meters]
    assert 10 < len(measured) < 100
    assert 900 < sum(each._weight for each in measured) <= 1000


def test_calls_in_quick_succession_are_estimated() -> None:
    iterator = iter(Dataset.range(200_000).map(lambda x: x))
    assert sum(1 for _ in iterator) == 200_000
    stats = iterator.stats()
    assert [stage["elements"] for stage in stats["stages"]] == [200_000, 200_000]
    assert all(stage["estimated"] for stage in stats["stages"])
    assert 0 < stats["waited"] <= stats["seconds"]


def test_a_stream_at_rest_is_called_directly() -> None:
    stream, _ = opened(Dataset.range(10_000))
    iterator = iter(Dataset.range(10_000).map(lambda x: x))
    for _ in range(2000):
        next(iterator)
    at_rest = [each for each in _streams_of(iterator._stream) if each.gauge is not None]
    assert len(at_rest) == 2
    assert any("next_chunk" not in each.__dict__ for each in at_rest)
    iterator.close()
    stream.close()


def _streams_of(stream: Stream) -> Iterator[Stream]:
    yield stream
    inner = getattr(stream, "_input", None)
    if inner is not None:
        yield from _streams_of(inner)


def test_a_closed_stream_is_in_no_reference_cycle() -> None:
    stream, meters = opened(Dataset.range(40).map(slow).shuffle(10).batch(4))
    stream.next_chunk(1, 1)
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

    dataset = Dataset.range(30).map(lambda _: Element())
    iterator = iter(dataset)
    dead = weakref.ref(next(iterator))
    del iterator
    gc.collect()
    assert dead() is None
    assert "30" in str(dataset.explain())


def test_an_error_takes_time_and_is_no_element() -> None:
    def fail(x: int) -> int:
        slow(x)
        if x % 2:
            raise ValueError(x)
        return x

    stream, meters = opened(Dataset.range(20).map(fail))
    found = positions(stream)
    assert len(found) == 20
    [_, mapping] = meters.reports()
    assert mapping.elements == 10
    assert mapping.get_wait >= 0.04
    stream.close()
