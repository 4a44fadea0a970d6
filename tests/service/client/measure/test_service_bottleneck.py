"""The sentence about what limits a client, from tables of evidence."""

from dataclasses import replace
from typing import Any

import pytest

from stoker.dataset.streams.measure.bottleneck import Pass
from stoker.dataset.streams.measure.stage_report import StageReport
from stoker.service.client.measure.reading import Reading
from stoker.service.client.measure.service_bottleneck import (
    find_bottleneck,
    find_service_bottleneck,
)
from stoker.service.client.measure.task_reading import TaskReading
from stoker.service.process.host import HostLoad
from stoker.service.task_evidence import TaskEvidence

SOURCE = StageReport(0, "list_files", "train.py:7", busy=0.1, get_wait=0.1, elements=90)
DECODE = StageReport(
    1, "map", "train.py:8", "decode", [0], elements=90, busy=8.8, p50=0.1, p99=0.12
)


def _task(
    worker: str = "host:1",
    *,
    elements: int = 90,
    ended_for: float | None = None,
    backlogged: int = 0,
    chunks: int = 90,
    protocol: str = "tcp",
    lost: bool = False,
    while_waiting: bool = True,
    **evidence: Any,
) -> TaskReading:
    fields = {
        "seconds": 10.0,
        "computing": 9.0,
        "elements": elements,
        "chunks": chunks,
        "cores": 8,
        "stages": [SOURCE, DECODE],
        **evidence,
    }
    measured = TaskEvidence(**fields)
    return TaskReading(
        worker=worker,
        protocol=protocol,
        elements=elements,
        bytes=elements * 1_000_000,
        evidence=measured,
        while_waiting=measured if while_waiting else TaskEvidence(),
        chunks_while_waiting=chunks,
        backlogged_while_waiting=backlogged,
        waited_since_end=ended_for,
        lost=lost,
    )


def _reading(*tasks: TaskReading, waited: float = 8.0, **fields: Any) -> Reading:
    return Reading(**{"seconds": 10.0, "waited": waited, "tasks": tasks, **fields})


def test_a_short_reading_is_not_judged():
    found = find_bottleneck(_reading(_task(), seconds=0.1, waited=0.1))
    assert found.kind == "unknown"
    assert found.sentence == ("Too little was read to name a bottleneck: 90 elements in 0.10 s.")


def test_a_reader_that_seldom_waits_is_the_limit():
    found = find_bottleneck(_reading(_task(), waited=0.3))
    assert found.kind == "trainer"
    assert found.sentence == (
        "The trainer limits training: it waited for elements for only 3% of 10.0 s, so a faster "
        "pipeline would hardly help."
    )


def test_the_sentence_has_the_time_for_which_the_consumer_waited():
    found = find_service_bottleneck(_reading(_task(), read=Pass(90, 20.0, 3.0)))
    assert found.kind == "worker"
    assert "the trainer waited for elements for 15% of 20.0 s" in found.sentence


def test_busy_workers_are_named_with_their_slowest_stage():
    found = find_bottleneck(_reading(_task(), _task("host:2")))
    assert (found.kind, found.site, found.worker) == ("worker", "train.py:8", "")
    assert found.sentence == (
        "The pipeline on the workers limits training: the trainer waited for elements for 80% of "
        "10.0 s, and 2 workers computed for 90% of that time: 99% of the pipeline's time was in "
        "map(decode) at train.py:8 (P50 100.0 ms, P99 120.0 ms per element); run it in parallel "
        "with num_parallel_calls=stoker.AUTOTUNE if it releases the GIL (as NumPy and image "
        "decoders do), or with `stoker worker --processes 8` otherwise (worker processes on "
        "host: 2, cores: 8)."
    )


@pytest.mark.parametrize(
    ("changes", "cores", "advice"),
    [
        ({"parallel": 8, "occupancy": 0.0, "busy": 70.0, "get_wait": 9.0}, 8, "add workers, or"),
        ({"cpu": 0.01}, 8, "waits rather than computes"),
        ({"cpu": 0.3}, 8, "if it releases the GIL"),
        ({"cpu": 0.99}, 8, "num_parallel_calls=stoker.AUTOTUNE"),
        ({}, 1, "no core of host is free (worker processes: 1, cores: 1)"),
        ({"kind": "batch"}, 1, "add workers on other machines"),
        ({"kind": "shuffle"}, 8, "use a smaller buffer_size"),
        ({"kind": "batch"}, 8, "write into the batch, or add workers"),
        ({"kind": "filter"}, 8, "in a map with num_parallel_calls=stoker.AUTOTUNE, or add workers"),
    ],
)
def test_the_advice_fits_the_slow_stage(changes, cores, advice):
    stage = StageReport(**{name: getattr(DECODE, name) for name in DECODE.__struct_fields__})
    for name, value in changes.items():
        setattr(stage, name, value)
    found = find_service_bottleneck(_reading(_task(stages=[SOURCE, stage], cores=cores)))
    assert found.kind == "worker"
    assert advice in found.sentence


def test_processes_of_a_local_cluster_are_advised_while_cores_are_free():
    found = find_service_bottleneck(_reading(_task("127.0.0.1:1"), _task("127.0.0.1:2")))
    assert (
        "or with stoker.LocalCluster(8) or `stoker worker --processes 8` otherwise (worker "
        "processes on 127.0.0.1: 2, cores: 8)."
    ) in found.sentence


@pytest.mark.parametrize("stages", [[SOURCE, DECODE], []], ids=["map", "not measured"])
def test_processes_that_use_all_cores_are_no_reason_for_more(stages):
    tasks = [_task(f"localhost:{n}", cores=2, stages=stages) for n in (1, 2)]
    found = find_service_bottleneck(_reading(*tasks))
    assert found.kind == "worker"
    assert "add workers on other machines" in found.sentence
    assert "--processes" not in found.sentence
    assert "LocalCluster" not in found.sentence


def test_a_full_machine_is_named_with_its_processes_and_cores():
    tasks = [_task(f"localhost:{n}", cores=2) for n in (1, 2)]
    assert find_service_bottleneck(_reading(*tasks)).sentence.endswith(
        "; make it cheaper, such as by NumPy or other native code instead of Python, or add "
        "workers on other machines, as no core of localhost is free (worker processes: 2, cores: "
        "2)."
    )


def test_a_process_is_counted_once_for_all_its_tasks():
    tasks = [_task("host:1", cores=2), _task("host:1", cores=2)]
    assert "worker processes on host: 1" in find_service_bottleneck(_reading(*tasks)).sentence


def test_a_process_that_has_computed_everything_still_counts():
    tasks = [_task(f"host:{n}", cores=3, ended=n == 3) for n in (1, 2, 3)]
    sentence = find_service_bottleneck(_reading(*tasks)).sentence
    assert "2 workers computed" in sentence
    assert "worker processes: 3, cores: 3" in sentence


def test_the_machine_with_the_most_free_cores_gets_more_processes():
    full = [_task(f"small:{n}", cores=2) for n in (1, 2)]
    found = find_service_bottleneck(_reading(*full, _task("large:1", cores=16)))
    assert "--processes 16` otherwise (worker processes on large: 1" in found.sentence


def test_a_slow_source_is_named():
    source = StageReport(0, "generator", "train.py:7", "rows", elements=90, busy=8.8)
    decode = StageReport(1, "map", "train.py:8", "decode", [0], elements=90, busy=0.2)
    found = find_service_bottleneck(_reading(_task(stages=[source, decode])))
    assert (found.kind, found.site, found.worker) == ("source", "train.py:7", "host:1")
    assert found.sentence.startswith("The source limits training: the trainer waited")
    assert "98% of the pipeline's time was in generator(rows) at train.py:7" in found.sentence


@pytest.mark.parametrize("kind", ["records", "load"])
def test_a_stage_that_reads_files_is_a_source(kind):
    reader = StageReport(1, kind, "train.py:8", "", [0], elements=90, busy=8.8)
    found = find_service_bottleneck(_reading(_task(stages=[SOURCE, reader])))
    assert (found.kind, found.site) == ("source", "train.py:8")
    assert "read several files at once with interleave(" in found.sentence


def test_a_service_that_workers_read_is_no_busy_thread():
    service = StageReport(0, "distribute", "train.py:7", busy=8.8, get_wait=8.8, occupancy=0.1)
    found = find_service_bottleneck(_reading(_task(stages=[service])))
    assert "100% of the pipeline's time was in distribute at train.py:7" in found.sentence


def test_workers_without_stages_are_still_named():
    found = find_service_bottleneck(_reading(_task(stages=[])))
    assert (found.kind, found.site) == ("worker", "")
    assert found.sentence.endswith("1 worker computed for 90% of that time; add workers.")


@pytest.mark.parametrize(
    "evidence",
    [
        {"put_wait": 8.0, "computing": 1.0},
        {"backlogged": 80, "computing": 5.0},
        {"backlogged": 20, "computing": 1.0, "ended": True, "seconds": 2.0},
    ],
    ids=["no room", "elements wait", "all is computed"],
)
def test_elements_that_wait_in_workers_show_a_slow_network(evidence):
    found = find_service_bottleneck(_reading(_task(**evidence), _task("host:2", **evidence)))
    assert found.kind == "network"
    assert "while 2 workers of 2 had elements ready" in found.sentence
    assert "tcp delivered 18.0 MB/s on average" in found.sentence
    assert 'compression="ZSTD"' in found.sentence


@pytest.mark.parametrize(
    ("protocol", "fields", "advice"),
    [
        ("shm", {}, "larger batches"),
        ("local", {}, "Receiving in this process limits training"),
        ("grpc", {}, 'data_transfer_protocol="tcp"'),
        ("tcp", {"max_outstanding_requests": 1}, "raise max_outstanding_requests, which is 1"),
        ("tcp", {"max_outstanding_requests": 64}, "smaller dtypes"),
    ],
)
def test_the_advice_fits_the_transport(protocol, fields, advice):
    task = _task(put_wait=8.0, computing=1.0, protocol=protocol)
    assert advice in find_service_bottleneck(_reading(task, **fields)).sentence


def test_workers_that_came_and_went_need_no_requests():
    gone = [_task(f"spot:{n}", lost=True) for n in range(16)]
    ended = [_task(f"spot:{n}", seconds=1.0, ended_for=1.0) for n in range(16)]
    sends = _task(put_wait=8.0, computing=1.0)
    found = find_service_bottleneck(_reading(*gone, *ended, sends, max_outstanding_requests=64))
    assert "smaller dtypes" in found.sentence


BUSY_MACHINE = HostLoad(9.3, 2)


@pytest.mark.parametrize(
    ("protocol", "host"), [("shm", "10.0.0.1"), ("local", "localhost"), ("tcp", "127.0.0.1")]
)
@pytest.mark.parametrize("computing", [1.0, 9.0])
def test_workers_that_wait_for_busy_cores_are_not_the_network(protocol, host, computing):
    tasks = [
        _task(f"{host}:{n}", protocol=protocol, put_wait=6.0, computing=computing, cores=2)
        for n in range(1, 129)
    ]
    found = find_service_bottleneck(_reading(*tasks, load=BUSY_MACHINE))
    assert found.kind == "machine"
    assert found.sentence == (
        "The trainer's machine limits training: the trainer waited for elements for 80% of 10.0 s, "
        "while 128 workers of 128 had elements ready (they waited for room for 60% of that time), "
        "and threads there had to wait for a processor (load average of one minute: 9.3, "
        "processors: 2); end other programs there, run fewer worker processes there, or run "
        "workers on other machines."
    )


def test_workers_of_a_machine_with_free_cores_wait_for_this_process():
    task = _task("localhost:1", protocol="shm", put_wait=6.0, computing=1.0)
    found = find_service_bottleneck(_reading(task, load=HostLoad(2.0, 2)))
    assert found.kind == "pipeline"
    assert found.sentence.startswith("Receiving in this process limits training")


def test_workers_of_other_machines_show_the_network_though_this_one_is_busy():
    task = _task("10.0.0.1:1", put_wait=6.0, computing=1.0)
    assert find_service_bottleneck(_reading(task, load=BUSY_MACHINE)).kind == "network"


def test_one_worker_behind_a_slow_link_is_not_the_network():
    slow = _task(put_wait=8.0, computing=1.0)
    found = find_service_bottleneck(_reading(slow, _task("host:2"), _task("host:3")))
    assert found.kind == "worker"


def test_a_task_that_waited_for_room_before_its_end_is_not_the_network():
    at_first = _task(put_wait=8.0, computing=1.0, seconds=9.0, ended_for=8.0, while_waiting=False)
    assert find_service_bottleneck(_reading(at_first, _task("host:2"))).kind == "worker"
    everywhere = [at_first, replace(at_first, worker="host:2")]
    assert find_service_bottleneck(_reading(*everywhere)).kind == "unknown"


def test_elements_that_wait_in_the_workers_that_run_show_a_slow_network():
    ended = [_task(f"host:{n}", ended_for=1.0, seconds=9.0, elements=50) for n in (1, 2, 3)]
    found = find_service_bottleneck(_reading(*ended, _task("host:4", put_wait=8.0, computing=1.0)))
    assert found.kind == "network"
    assert "while 1 worker of 1 had elements ready" in found.sentence


def _source(splits: int) -> dict[str, Any]:
    return {"splits": {0: splits}}


@pytest.mark.parametrize(
    "idle",
    [
        _task(
            "host:2", elements=0, chunks=0, computing=0.0, seconds=8.0, split_wait=7.8, **_source(1)
        ),
        _task(
            "host:2", elements=0, chunks=0, computing=0.0, seconds=0.1, ended_for=7.8, **_source(1)
        ),
    ],
    ids=["waiting", "ended"],
)
@pytest.mark.parametrize("ended_for", [None, 0.0], ids=["during the epoch", "after it"])
def test_workers_without_splits_are_counted(idle, ended_for):
    busy = _task(ended_for=ended_for, **_source(1))
    found = find_service_bottleneck(_reading(busy, idle, assigns_splits=True))
    assert (found.kind, found.site) == ("splits", "train.py:7")
    assert found.sentence == (
        "There are too few splits: the trainer waited for elements for 80% of 10.0 s, and "
        "list_files at train.py:7 has 1 split for 2 workers, of which 1 had none for 98% of that "
        'time; divide the data into more files, or use processing_mode="parallel_epochs" if each '
        "worker may yield the whole dataset."
    )


def test_a_worker_that_just_ended_is_no_lack_of_splits():
    ended = _task("host:2", seconds=9.5, ended_for=0.5, **_source(2))
    found = find_service_bottleneck(_reading(_task(**_source(2)), ended, assigns_splits=True))
    assert found.kind == "worker"


def test_a_straggler_is_named_in_a_coordinated_read():
    others: dict[str, Any] = {"computing": 0.4, "put_wait": 9.0, "elements": 100, "backlogged": 90}
    found = find_service_bottleneck(
        _reading(_task("a:1", **others), _task("b:1"), _task("c:1", **others), in_turns=True)
    )
    assert (found.kind, found.worker) == ("straggler", "b:1")
    assert "b:1, whose turn all others wait for, took 100.0 ms per element" in found.sentence
    assert "25 times as long as the median of the 2 others" in found.sentence
    assert "unless its part of the data is more expensive" in found.sentence


def test_a_worker_that_yields_nothing_is_a_straggler():
    others: dict[str, Any] = {"computing": 0.4, "put_wait": 9.0, "backlogged": 90}
    stuck = _task("b:1", elements=0, chunks=0, computing=9.9)
    found = find_service_bottleneck(_reading(_task("a:1", **others), stuck, in_turns=True))
    assert (found.kind, found.worker) == ("straggler", "b:1")


def test_the_last_worker_is_a_straggler_only_if_it_is_slower():
    done: dict[str, Any] = {"computing": 2.0, "seconds": 2.0, "ended_for": 8.0, "elements": 100}
    slow, usual = _task("b:1"), _task("b:1", elements=450)
    found = find_service_bottleneck(_reading(_task("a:1", **done), slow))
    assert (found.kind, found.worker) == ("straggler", "b:1")
    assert "b:1, while the others were idle, took 100.0 ms" in found.sentence
    assert find_service_bottleneck(_reading(_task("a:1", **done), usual)).kind == "worker"


@pytest.mark.parametrize("ended_for", [None, 0.0], ids=["at last", "after the end"])
def test_a_slower_worker_that_ends_with_the_others_is_no_straggler(ended_for):
    fast = [_task(worker, ended_for=0.1, elements=300) for worker in ("a:1", "b:1")]
    slow = _task("c:1", ended_for=ended_for)
    assert find_service_bottleneck(_reading(*fast, slow, assigns_splits=True)).kind == "worker"


def test_equal_workers_in_turns_are_no_stragglers():
    found = find_service_bottleneck(_reading(_task("a:1"), _task("b:1"), in_turns=True))
    assert found.kind == "worker"


def test_a_slow_consumer_holds_up_the_others():
    full: dict[str, Any] = {"put_wait": 9.0, "computing": 0.5}
    found = find_service_bottleneck(
        _reading(_task("a:1", **full), _task("b:1", **full), in_turns=True)
    )
    assert found.kind == "trainer"
    assert "Another consumer limits training" in found.sentence


def test_a_slow_consumer_is_named_though_a_worker_has_ended():
    full: dict[str, Any] = {"put_wait": 9.0, "computing": 0.5}
    ended = _task("b:1", put_wait=1.0, seconds=5.0, computing=1.0, ended_for=1.0)
    found = find_service_bottleneck(_reading(_task("a:1", **full), ended, in_turns=True))
    assert "Another consumer limits training" in found.sentence


def test_a_lost_worker_is_not_judged():
    lost = _task("b:1", put_wait=9.0, computing=0.1, lost=True)
    assert find_service_bottleneck(_reading(_task("a:1"), lost)).worker == "a:1"


def test_workers_that_report_nothing_are_unknown():
    lost = TaskReading(worker="lost:1", lost=True)
    found = find_service_bottleneck(_reading(TaskReading(worker="old:1", elements=40), lost))
    assert found.kind == "unknown"
    assert "no worker has reported yet where its time goes (1 worker)" in found.sentence


def test_idle_workers_are_unknown_with_their_figures():
    found = find_service_bottleneck(_reading(_task(computing=2.0, put_wait=1.0, split_wait=3.0)))
    assert found.kind == "unknown"
    assert found.sentence.endswith(
        "waited for room for 10%, waited for splits for 30% of that time; run `stoker doctor` with "
        "the address of the dispatcher on the trainer's machine, which measures how fast elements "
        "arrive from each worker."
    )


def test_idle_workers_of_a_deterministic_epoch_wait_to_be_asked():
    task = _task(computing=2.0, split_wait=3.0)
    found = find_service_bottleneck(_reading(task, by_position=True))
    assert "waited to be asked for elements for 30% of that time" in found.sentence


def test_a_busy_machine_is_named_if_nothing_else_was_busy():
    idle = _task(computing=2.0, put_wait=1.0, split_wait=3.0)
    found = find_service_bottleneck(_reading(idle, load=BUSY_MACHINE))
    assert found.kind == "machine"
    assert "load average of one minute: 9.3, processors: 2" in found.sentence
