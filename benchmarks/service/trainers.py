"""The trainer's process: opens a subject, reads it for some seconds, and reports."""

import dataclasses
import json
import logging
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import bench_jpeg
from harness import read_for

from service import limits
from service.elements import ENDLESS, Element
from service.processes import cpu_seconds
from service.rows import ROWS, Row, Subject

Open = Callable[[str], Iterable[Any]]
"""Takes the dispatcher's address (empty without a service); returns the elements to read."""

_WARM_SECONDS = 0.5
_FEWEST_FIRSTS = 5


@dataclasses.dataclass(frozen=True)
class Report:
    """The figures that one trainer measured.

    Attributes:
        rate: counted units per second.
        gigabytes: GB of elements per second.
        user_microseconds: CPU of the thread that reads, per element.
        cpu_per_gigabyte: CPU seconds of the trainer's whole process.
        milliseconds: the median from ``iter()`` to the first element.
        cpu_microseconds: CPU of the trainer's and the servers' processes, per element (or per
            iteration opened); nan for a busy trainer.
        error: the reason for a failed measurement.
    """

    rate: float = float("nan")
    gigabytes: float = float("nan")
    user_microseconds: float = float("nan")
    cpu_per_gigabyte: float = float("nan")
    milliseconds: float = float("nan")
    cpu_microseconds: float = float("nan")
    error: str = ""


def open_stoker(row: Row, subject: Subject) -> Open:
    """Open a distributed dataset; for the transport "local" the worker runs in this process."""
    import stoker

    if subject.transport == "local":
        cluster = stoker.LocalCluster(row.workers, threads=True)
    dataset = row.element.stoker()

    def opened(target: str) -> Iterable[Any]:
        distributed: Iterable[Any] = dataset.distribute(
            cluster.target if subject.transport == "local" else target,
            processing_mode=subject.mode,
            data_transfer_protocol=subject.transport,
            compression=subject.compression,
        )
        return distributed

    return opened


class _Arrays:
    """A dataset of tf.data that yields NumPy arrays."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = self._dataset.as_numpy_iterator()
        return iterator


def open_tensorflow(row: Row, subject: Subject) -> Open:
    """Open the same with tf.data service."""
    import tensorflow as tf

    distribute = tf.data.experimental.service.distribute
    dataset = row.element.tensorflow()

    def opened(target: str) -> Iterable[Any]:
        distributed = distribute(subject.mode, target, compression=subject.compression)
        return _Arrays(dataset.apply(distributed))

    return opened


def open_here(make: Callable[[Element], Iterable[Any]]) -> Callable[[Row, Subject], Open]:
    """Open a subject without a service: a limit of the machine, or a local pipeline."""
    return lambda row, _: lambda _: make(row.element)


def _photos(
    batches: Callable[[list[str], int], Iterable[Any]],
) -> Callable[[Element], Iterable[Any]]:
    return lambda _: batches(bench_jpeg.photos(), ENDLESS)


READERS: dict[str, Callable[[Row, Subject], Open]] = {
    "stoker": open_stoker,
    "tf.data service": open_tensorflow,
    "socket pair": open_here(limits.socket_pair),
    "memcpy, fresh": open_here(limits.copied_fresh),
    "memcpy, reused": open_here(limits.copied_reused),
    "stoker, local": open_here(lambda element: element.stoker()),
    "tf.data, local": open_here(lambda element: _Arrays(element.tensorflow())),
    "DataLoader": open_here(_photos(bench_jpeg.torch_batches)),
    "Grain": open_here(_photos(bench_jpeg.grain_batches)),
}


def train(name: str, label: str, seconds: float) -> None:
    """Run the process of ``bench_service.py --train ROW LABEL SECONDS``.

    It imports and builds the dataset while the servers start; their address arrives on stdin.
    """
    row = ROWS[name]
    warnings = _collect_warnings()
    try:
        opened = READERS[row.subject(label).system](row, row.subject(label))
        servers = json.loads(sys.stdin.readline())
        elements = opened(servers["target"])
        if row.busy:
            threading.Thread(target=_compute_forever, daemon=True).start()
        processes = [os.getpid(), *servers["processes"]]
        report = (_first_elements if row.first else _rates)(row, elements, seconds, processes)
        if warnings:  # for example, that another transport is used than the requested one
            report = Report(error=warnings[0])
    except Exception as error:  # noqa: BLE001 - the table shows it, and other rows go on
        report = Report(error=traceback.format_exception_only(error)[-1].strip())
    print(json.dumps(dataclasses.asdict(report)), flush=True)
    os._exit(0)  # TensorFlow takes seconds to exit


def _collect_warnings() -> list[str]:
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("stoker").addHandler(handler)
    return warnings


def _compute_forever() -> None:
    number = 0
    while True:
        number += 1


def _rates(row: Row, elements: Iterable[Any], seconds: float, processes: list[int]) -> Report:
    iterator = iter(elements)
    row.element.check(next(iterator))
    read = row.element.read if row.reading else None
    read_for(iterator, min(_WARM_SECONDS, seconds / 2) * row.duration, read)
    thread, process, together = time.thread_time(), time.process_time(), cpu_seconds(processes)
    count, elapsed = read_for(iterator, seconds * row.duration, read)
    thread, process = time.thread_time() - thread, time.process_time() - process
    together = cpu_seconds(processes) - together
    gigabytes = count * row.element.nbytes / 1e9
    return Report(
        rate=count * row.element.weigh / elapsed,
        gigabytes=gigabytes / elapsed,
        user_microseconds=thread / count * 1e6,
        cpu_per_gigabyte=float("nan") if row.busy else process / gigabytes,
        cpu_microseconds=float("nan") if row.busy else together / count / row.element.weigh * 1e6,
    )


def _first_elements(
    row: Row, elements: Iterable[Any], seconds: float, processes: list[int]
) -> Report:
    """Return the median over the epochs after the first."""
    _milliseconds_to_first(row, elements)
    measured: list[float] = []
    began, cpu = time.perf_counter(), cpu_seconds(processes)
    while len(measured) < _FEWEST_FIRSTS or time.perf_counter() - began < seconds:
        measured.append(_milliseconds_to_first(row, elements))
    return Report(
        milliseconds=statistics.median(measured),
        cpu_microseconds=(cpu_seconds(processes) - cpu) / len(measured) * 1e6,
    )


def _milliseconds_to_first(row: Row, elements: Iterable[Any]) -> float:
    began = time.perf_counter()
    iterator = iter(elements)
    element = next(iterator)
    milliseconds = (time.perf_counter() - began) * 1e3
    row.element.check(element)
    if hasattr(iterator, "close"):  # TensorFlow's are closed when they are deleted
        iterator.close()
    return milliseconds
