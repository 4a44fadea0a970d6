"""Pipelines that are slow for one known reason: the sentence names it.

Functions, generators and trainers that are slow sleep, so other load on the machine makes nothing
else the slowest. A pipeline is read until its workers have measured enough.
"""

import inspect
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.service import messages as m
from stoker.service.client import shell
from stoker.service.control import rpc
from stoker.service.process.host import HostLoad, load
from stoker.service.status import ClientStatus
from stoker.wire.transports.poller import Poller
from tests.faults.proxy import Forwarder
from tests.serving import (
    DEADLINE,
    Service,
    eventually,
    iterator_with_deadline,
    reading,
    worker_fields_for,
)

pytestmark = pytest.mark.alone

MEASURED = 1.0
"""Seconds of a task that are enough for a judgement."""

LOOKS = 3
SECONDS_BETWEEN_LOOKS = 0.5

SLOW = 0.02


def _named(stage: str, build: Callable[..., Any], sentence: str) -> bool:
    """Return whether a sentence names a stage at the marked line of the function that builds it."""
    source, first = inspect.getsourcelines(build)
    [offset] = [k for k, text in enumerate(source) if "# the slow line" in text]
    place = rf"{re.escape(stage)}\S* at \S*{Path(__file__).name}:{first + offset}\b"
    return re.search(place, sentence) is not None


def _stats(
    dataset: stoker.Dataset,
    bottleneck: str,
    step: Callable[[], None] = lambda: None,
    tasks: int = 1,
) -> dict[str, Any]:
    """Read until `tasks` tasks have measured enough, and return the statistics after the end.

    The bottleneck must remain the one that was found then. Before that, and while connecting takes
    a good part of the time, another one may be named.
    """
    end = time.monotonic() + DEADLINE
    looks, due = 0, 0.0
    with iterator_with_deadline(dataset, 2 * DEADLINE) as iterator:
        while looks < LOOKS:
            next(iterator)
            step()
            now = time.monotonic()
            if now < due:
                continue
            stats = iterator.stats()
            enough = [task for task in stats["tasks"] if task["seconds"] >= MEASURED]
            found = len(enough) >= tasks and stats["bottleneck"] == bottleneck
            if looks or found or now > end:
                assert stats["bottleneck"] == bottleneck, stats["sentence"]
                looks, due = looks + 1, now + SECONDS_BETWEEN_LOOKS
    stats = iterator.stats()
    assert stats["bottleneck"] == bottleneck, stats["sentence"]
    return stats


def _sleep() -> None:
    time.sleep(SLOW)


def _slowly(x: Any) -> Any:
    time.sleep(SLOW)
    return x


def _quickly(x: Any) -> Any:
    return x


def test_a_slow_trainer_is_the_limit():
    with Service(1) as service:
        numbers = stoker.Dataset.range(1 << 30)
        # By position, the first chunks would be enough for this reading, and show an empty buffer.
        distributed = numbers.distribute(service.target, processing_mode="distributed_epoch")
        stats = _stats(distributed, "trainer", _sleep)
    assert stats["stages"][0]["occupancy"] > 0.3
    assert stats["sentence"].startswith("The trainer limits training: it waited for elements for")


def test_a_slow_map_on_workers_is_named():
    def build() -> stoker.Dataset:
        return stoker.Dataset.range(1 << 30).map(_slowly)  # the slow line

    with Service(2) as service:
        stats = _stats(build().distribute(service.target), "worker", tasks=2)
    assert _named("map(_slowly)", build, stats["sentence"])
    assert "2 workers computed for" in stats["sentence"]
    [distribute] = stats["stages"]
    assert distribute["occupancy"] < 0.3
    assert distribute["busy"] > stats["seconds"] / 2
    assert distribute["p99"] > SLOW / 8


@pytest.mark.parametrize("mode", ["distributed_epoch", "parallel_epochs"])
def test_a_slow_map_is_named_after_the_last_element(mode: str):
    with Service(2) as service:
        numbers = stoker.Dataset.range(60).map(_slowly)
        iterator = iter(numbers.distribute(service.target, processing_mode=mode))
        assert list(iterator)
    assert iterator.stats()["bottleneck"] == "worker", iterator.stats()["sentence"]


def test_the_bottleneck_remains_at_the_begin_of_an_epoch():
    with Service(1) as service:
        numbers = stoker.Dataset.range(60).map(_slowly).distribute(service.target).repeat()
        with iterator_with_deadline(numbers, DEADLINE) as iterator:
            for _ in range(61):
                next(iterator)
            stats = iterator.stats()
    assert stats["bottleneck"] == "worker", stats["sentence"]


def test_a_prefetch_of_the_trainer_hides_no_slow_map_on_workers():
    def build() -> stoker.Dataset:
        return stoker.Dataset.range(1 << 30).map(_slowly)  # the slow line

    with Service(1) as service:
        distributed = build().distribute(service.target)
        stats = _stats(distributed.prefetch(2), "worker", lambda: time.sleep(SLOW / 2))
    assert _named("map(_slowly)", build, stats["sentence"])
    assert f"for {stats['waited'] / stats['seconds']:.0%} of" in stats["sentence"]


def test_the_dispatcher_knows_how_long_the_trainer_waits():
    """The thread of the prefetch waits nearly all the time, the trainer half of it."""
    with Service(1, client_timeout_ms=1_000) as service:
        slow = stoker.Dataset.range(1 << 30).map(_slowly).distribute(service.target).prefetch(2)
        with iterator_with_deadline(slow, DEADLINE) as iterator:
            for _ in range(100):
                next(iterator)
                time.sleep(SLOW / 2)
            [reports] = service.dispatcher._shell.logic._reports._clients.values()
            stats = iterator.stats()
    assert 0 < reports.last.waited < 1.3 * stats["waited"]
    assert stats["waited"] < 0.75 * stats["seconds"]


def test_the_status_shows_an_epoch_of_seconds():
    """Before the second heartbeat of the usual interval, 5 s."""
    with Service(1) as service:
        slow = stoker.Dataset.range(1 << 30).map(_slowly).distribute(service.target)
        with iterator_with_deadline(slow, DEADLINE) as iterator:
            end = time.monotonic() + 4.5
            reports = service.dispatcher._shell.logic._reports._clients
            while time.monotonic() < end and all(
                each.last.elements < 5 for each in reports.values()
            ):
                next(iterator)
            [found] = reports.values()
    assert found.last.elements >= 5
    assert found.last.bottleneck == "worker"


def test_a_closed_stream_reports_nothing(monkeypatch):
    with Service(1) as service:
        iterator = iter(stoker.Dataset.range(9).distribute(service.target))
        stream: Any = iterator._stream
        iterator.close()
        monkeypatch.setattr(stream, "_report", lambda now: 1 // 0)
        stream._next_heartbeat = 0.0
        stream._tick()


def test_the_slow_one_of_three_maps_is_named():
    def build() -> stoker.Dataset:
        first = stoker.Dataset.range(1 << 30).map(_quickly)
        second = first.map(_slowly)  # the slow line
        return second.map(_quickly)

    with Service(1) as service:
        stats = _stats(build().distribute(service.target), "worker")
    assert _named("map(_slowly)", build, stats["sentence"])


def test_a_slow_source_is_named():
    def rows() -> Iterator[int]:
        for row in range(1 << 30):
            time.sleep(SLOW)
            yield row

    def build() -> stoker.Dataset:
        return stoker.Dataset.from_generator(rows)  # the slow line

    with Service(1) as service:
        dataset = build().map(_quickly)
        distributed = dataset.distribute(service.target, processing_mode="parallel_epochs")
        stats = _stats(distributed, "source")
    assert _named("from_generator", build, stats["sentence"])


def test_a_slow_network_is_named(monkeypatch):
    monkeypatch.setattr(shell, "load", HostLoad)  # of a machine with free cores
    with Forwarder() as proxy:
        proxy.rate = 2_000_000
        worker = {
            "data_transfer_address": proxy.address,
            "data_transfer_protocol": "tcp",
            "buffer_bytes": 1 << 20,
        }
        with Service(1, worker=worker) as service:
            proxy.target = int(service.workers[0].address.rpartition(":")[2])
            arrays = stoker.Dataset.range(1 << 30).map(lambda _: np.zeros(50_000, np.uint8))
            distributed = arrays.distribute(
                service.target, data_transfer_protocol="tcp", compression=None
            )
            stats = _stats(distributed, "network")
    assert "tcp delivered" in stats["sentence"]


def test_too_few_splits_are_counted(tmp_path: Path):
    (tmp_path / "only").touch()

    def build() -> stoker.Dataset:
        return stoker.Dataset.list_files(f"{tmp_path}/*")  # the slow line

    with Service(2) as service:
        numbers = build().flat_map(lambda _: stoker.Dataset.range(1 << 30)).map(_slowly)
        distributed = numbers.distribute(service.target, processing_mode="distributed_epoch")
        stats = _stats(distributed, "splits")
    assert _named("list_files", build, stats["sentence"])
    assert "has 1 split for 2 workers" in stats["sentence"]


def test_a_straggling_worker_is_named(tmp_path: Path):
    straggler = tmp_path / "straggler"

    def make() -> Callable[[int], int]:
        sleeps = None

        def step(x: int) -> int:
            nonlocal sleeps
            if sleeps is None:
                sleeps = _is_first(straggler)
            if sleeps:
                time.sleep(5 * SLOW)
            return x

        return step

    with Service(3) as service:
        numbers = (
            stoker.Dataset.range(1 << 30)
            .repeat()
            .map(make())
            .distribute(
                service.target,
                processing_mode="parallel_epochs",
                job_name="job",
                consumer_index=0,
                num_consumers=1,
            )
        )
        stats = _stats(numbers, "straggler", tasks=3)
        [slow] = [
            address
            for address, task_id in _tasks(service)
            if straggler.read_text() == f"stoker-task-{task_id & 0xFFFFF}"
        ]
    assert slow in stats["sentence"]


def _tasks(service: Service) -> list[tuple[str, int]]:
    """Return the address of the worker and the id of each task."""
    shells: list[Any] = [worker._shell for worker in service.workers]
    return [(shell.address, task_id) for shell in shells for task_id in shell.logic.tasks]


def _is_first(file: Path) -> bool:
    """Return True in the first task that calls it, and write its thread's name to the file."""
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.write(descriptor, threading.current_thread().name.encode())
    os.close(descriptor)
    return True


def test_a_slow_stage_of_the_trainer_is_named():
    def build(dataset: stoker.Dataset) -> stoker.Dataset:
        return dataset.map(_slowly)  # the slow line

    with Service(1) as service:
        distributed = stoker.Dataset.range(1 << 30).map(_quickly).distribute(service.target)
        stats = _stats(build(distributed), "pipeline")
    assert _named("map(_slowly)", build, stats["sentence"])


def test_the_dispatcher_knows_what_limits_a_client():
    with Service(1, client_timeout_ms=1_000) as service:
        slow = stoker.Dataset.range(1 << 30).map(_slowly).distribute(service.target)
        with reading(slow.iterator()):
            assert eventually(lambda: "map(_slowly)" in _clients(service.target)[0].sentence)
            [client] = _clients(service.target)
    assert client.bottleneck == "worker"


def test_the_dispatcher_knows_that_a_client_is_blocked(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(shell, "STALL_SECONDS", 0.5)
    blocked = tmp_path / "blocked"

    def block(x: int) -> int:
        time.sleep(SLOW)
        while blocked.exists():
            time.sleep(SLOW)
        return x

    with Service(1, client_timeout_ms=1_000) as service:
        numbers = stoker.Dataset.range(1 << 30).map(block).distribute(service.target)
        with iterator_with_deadline(numbers, 2 * DEADLINE) as iterator:
            for _ in range(10):
                next(iterator)
                time.sleep(5 * SLOW)
            assert iterator.stats()["bottleneck"] == "trainer"
            blocked.touch()
            reader = threading.Thread(target=lambda: list(islice(iterator, 100)))
            reader.start()
            try:
                assert eventually(lambda: _clients(service.target)[0].bottleneck == "worker")
            finally:
                blocked.unlink()
                reader.join()


def test_reading_goes_on_if_no_bottleneck_can_be_found(monkeypatch):
    monkeypatch.setattr(shell, "STALL_SECONDS", 0.0)
    monkeypatch.setattr(shell, "find_bottleneck", lambda _: 1 // 0)
    with Service(1, client_timeout_ms=1_000) as service:
        slow = stoker.Dataset.range(1 << 30).map(_slowly).distribute(service.target)
        with reading(slow.iterator()):
            found = "No bottleneck was found: ZeroDivisionError"
            assert eventually(lambda: found in _clients(service.target)[0].sentence)


def test_a_reading_has_the_load_of_this_machine(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (9.3, 1.0, 1.0))
    with Service(1) as service:
        iterator = iter(stoker.Dataset.range(9).distribute(service.target))
        assert next(iterator) == 0
        stream: Any = iterator._stream
        assert stream.reading().load == HostLoad(9.3, os.cpu_count() or 1)
        iterator.close()


def test_a_system_without_load_averages_has_no_load(monkeypatch):
    monkeypatch.delattr(os, "getloadavg")
    assert not load().is_high


def test_the_time_after_an_interrupted_read_is_no_wait(monkeypatch):
    def interrupt(poller: Poller, seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Poller, "poll", interrupt)
    with (
        Service(0) as service,
        iter(stoker.Dataset.range(9).distribute(service.target)) as iterator,
    ):
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        stream: Any = iterator._stream
        assert stream._logic.wait.run(0, math.inf) == 0.0, "no wait is open"


def _clients(target: str) -> list[ClientStatus]:
    reply = rpc.call(target.removeprefix("grpc://"), m.GetStatus(), DEADLINE)
    assert isinstance(reply, m.StatusReply)
    return [client for job in reply.status.jobs for client in job.clients]


@pytest.mark.parametrize("transport", ["local", "shm", "tcp", "grpc"])
def test_evidence_arrives_by_each_transport(transport: str):
    with Service(1, worker=worker_fields_for(transport)) as service:
        slow = stoker.Dataset.range(1 << 30).map(_slowly)
        distributed = slow.distribute(service.target, data_transfer_protocol=transport)
        with reading(iterator := distributed.iterator()):
            assert eventually(lambda: iterator.stats()["tasks"][0]["computed"])
            [task] = iterator.stats()["tasks"]
    assert task["protocol"] == transport
    assert task["worker"] == service.workers[0].address
    assert [stage["kind"] for stage in task["stages"]] == ["range", "map"]
    assert task["computing"] > 0


def test_statistics_outlive_the_iterator():
    with Service(1) as service:
        iterator = iter(
            stoker.Dataset.range(10_000).distribute(
                service.target, processing_mode="distributed_epoch"
            )
        )
        assert len(list(iterator)) == 10_000
    [task] = iterator.stats()["tasks"]
    assert (task["elements"], task["computed"], task["ended"]) == (10_000, 10_000, True)
