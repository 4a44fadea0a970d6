"""The sentence that names what limits an iterator."""

import msgspec
import pytest

from stoker.dataset.streams.measure.bottleneck import (
    Bottleneck,
    Pass,
    find_bottleneck,
    seconds_text,
)
from stoker.dataset.streams.measure.stage_report import FIRST_NESTED, StageReport

SLOW = Pass(elements=1000, elapsed=10.0, waited=8.0)


def source(number=0, busy=0.1, get_wait=None, **fields):
    return StageReport(
        number, "range", "train.py:1", busy=busy, get_wait=get_wait or busy, **fields
    )


def mapping(number, busy, get_wait, function="decode", **fields):
    site, inputs = f"train.py:{number + 1}", [number - 1]
    return StageReport(
        number, "map", site, function, inputs, busy=busy, get_wait=get_wait, **fields
    )


def prefetch(number, get_wait):
    return StageReport(number, "prefetch", inputs=[number - 1], occupancy=0.1, get_wait=get_wait)


def test_a_consumer_that_hardly_waits_limits_training():
    found = find_bottleneck(Pass(1000, 10.0, 0.4), [source()])
    assert found.kind == "trainer"
    assert "only 4% of 10.0 s" in found.sentence


@pytest.mark.parametrize("read", [Pass(4, 4.0, 3.0), Pass(1000, 0.1, 0.1), Pass(0, 0.0, 0.0)])
def test_too_little_data_is_unknown(read):
    assert find_bottleneck(read, [source(), mapping(1, 9.0, 9.1)]).kind == "unknown"


def test_a_few_elements_that_take_long_are_judged():
    stages = [source(busy=0.1), mapping(1, 9.0, 9.1)]
    assert find_bottleneck(Pass(2, 10.0, 9.0), stages).kind == "pipeline"


def test_time_that_no_stage_measured_is_unknown():
    found = find_bottleneck(SLOW, [source(busy=0.01), mapping(1, 0.01, 0.02)])
    assert found.kind == "unknown"
    assert "80% of 10.0 s" in found.sentence
    assert find_bottleneck(SLOW, []).kind == "unknown"


def test_the_slow_one_of_several_maps_is_named_with_its_line():
    stages = [
        source(),
        mapping(1, 0.5, 0.6, "resize"),
        mapping(2, 7.0, 7.6, p50=4.1e-3, p99=9.8e-3),
        mapping(3, 0.3, 7.9, "scale"),
    ]
    assert find_bottleneck(SLOW, stages) == Bottleneck(
        "pipeline",
        "The pipeline limits training: the trainer waited for elements for 80% of 10.0 s, and 89% "
        "of the pipeline's time was in map(decode) at train.py:3 (P50 4.1 ms, P99 9.8 ms per "
        "element); run it in parallel with num_parallel_calls=stoker.AUTOTUNE if it releases the "
        "GIL (as NumPy and image decoders do), or on workers with distribute().",
        2,
        "train.py:3",
        read=SLOW,
    )


def test_a_slow_source_is_named():
    found = find_bottleneck(SLOW, [source(busy=7.5), mapping(1, 0.2, 7.7)])
    assert (found.kind, found.stage, found.site) == ("source", 0, "train.py:1")
    assert found.sentence.startswith("The source limits training: ")


def test_a_reader_of_files_is_a_source_although_it_reads_names():
    stages = [source(), StageReport(1, "records", inputs=[0], busy=7.5, get_wait=7.6)]
    assert find_bottleneck(SLOW, stages).kind == "source"


def test_saturated_threads_of_a_parallel_map_are_the_limit():
    stages = [source(busy=0.2), mapping(1, 38.0, 8.0, occupancy=0.1, parallel=4)]
    found = find_bottleneck(SLOW, stages)
    assert found.stage == 1
    assert "all 4 threads of map(decode) at train.py:2 were busy for 95%" in found.sentence


def test_idle_threads_of_a_parallel_map_blame_its_input():
    stages = [
        source(busy=9.0),
        mapping(1, 2.0, 8.0, occupancy=0.1, parallel=4),
        mapping(2, 0.1, 8.1, "scale"),
    ]
    assert find_bottleneck(SLOW, stages).stage == 0


def test_a_prefetch_blames_the_stage_before_it():
    stages = [source(), mapping(1, 9.0, 9.1), prefetch(2, 8.0), mapping(3, 0.1, 8.1, "scale")]
    assert find_bottleneck(SLOW, stages).stage == 1


def test_a_stage_after_a_prefetch_is_found():
    stages = [source(), mapping(1, 2.0, 2.1), prefetch(2, 0.1), mapping(3, 7.7, 7.8, "scale")]
    assert find_bottleneck(SLOW, stages).stage == 3


def test_the_slow_input_of_several_is_named():
    stages = [
        source(0),
        mapping(1, 0.1, 0.2),
        source(2, busy=7.0),
        StageReport(3, "zip", inputs=[1, 2], busy=0.1, get_wait=7.3),
    ]
    assert find_bottleneck(SLOW, stages).stage == 2


def test_datasets_of_a_parallel_interleave_are_found():
    nested = FIRST_NESTED
    stages = [
        source(0),
        StageReport(nested, "from_generator", "train.py:7", busy=36.0, get_wait=36.0),
        StageReport(
            1, "interleave", inputs=[0, nested], occupancy=0.0, parallel=4, get_wait=8.0, busy=0.1
        ),
    ]
    found = find_bottleneck(SLOW, stages)
    assert (found.kind, found.site) == ("source", "train.py:7")


@pytest.mark.parametrize(
    ("stage", "advice"),
    [
        (mapping(1, 8, 8, cpu=0.02), "call it for several elements at once"),
        (mapping(1, 8, 8, cpu=0.9), "if it releases the GIL"),
        (mapping(1, 20, 8, cpu=0.1, parallel=2, occupancy=0), "a larger num_parallel_calls"),
        (mapping(1, 20, 8, cpu=0.9, parallel=2, occupancy=0), "run it on workers"),
        (StageReport(1, "batch", inputs=[0], busy=8, get_wait=8), "write into the batch"),
        (StageReport(1, "shuffle", inputs=[0], busy=8, get_wait=8), "smaller buffer_size"),
        (StageReport(1, "from_generator", busy=8, get_wait=8), "several generators at once"),
        (StageReport(1, "records", inputs=[0], busy=8, get_wait=8), "several files at once"),
        (StageReport(1, "filter", function="f", inputs=[0], busy=8, get_wait=8), "in a map with"),
        (StageReport(1, "unbatch", inputs=[0], busy=8, get_wait=8), "prefetch(stoker.AUTOTUNE)"),
    ],
)
def test_advice_follows_the_kind_of_the_stage(stage, advice):
    stages = [source(busy=0.1), stage]
    assert advice in find_bottleneck(SLOW, stages).sentence


def test_a_service_names_its_own_bottleneck():
    service = StageReport(0, "distribute", "train.py:9", busy=7.0, get_wait=7.0)
    answer = Bottleneck("network", "The network limits training.")
    found = find_bottleneck(SLOW, [service], {0: lambda read: answer if read == SLOW else None})
    assert found == msgspec.structs.replace(answer, read=SLOW)


def test_a_service_without_an_answer_is_named():
    service = StageReport(0, "distribute", "train.py:9", busy=7.0, get_wait=7.0)
    found = find_bottleneck(SLOW, [service, mapping(1, 0.1, 7.1)], {0: lambda _: None})
    assert found.stage == 0
    assert "distribute at train.py:9" in found.sentence


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.34, "12.3 s"),
        (4.1e-3, "4.1 ms"),
        (25e-6, "25 µs"),
        (3e-8, "30 ns"),
        (1200.0, "1200 s"),
        (0, "0 µs"),
    ],
)
def test_durations_have_a_unit(seconds, text):
    assert seconds_text(seconds) == text
