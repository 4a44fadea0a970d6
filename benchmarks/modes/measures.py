"""Measurements of one processing mode on a running service, or of the local pipeline."""

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench_waiting import WAIT_SECONDS, wait
from harness import Figure, read_for, repeated
from service.elements import ENDLESS, Element
from service.processes import cpu_seconds, descendants

import stoker

LOCAL, BY_POSITION = "local", "deterministic_epoch"
WARM_SECONDS = 1.0

SLOWER = 10
RANKS, RANK_ROWS, RANK_BATCH = 8, 10**7, 128
RESUMED, RESUMED_BATCH = 10**9, 100
RESUMED_SHUFFLED, SHUFFLE_BUFFER = 10**8, 10_000


@dataclass(frozen=True)
class Side:
    """A mode that is measured in turn with another one on the same service.

    Attributes:
        mode: the processing mode; "local" runs the pipeline in the trainer.
        target: the dispatcher's.
        workers: process ids.
        protocol: `data_transfer_protocol`.
    """

    mode: str
    target: str
    workers: list[int]
    protocol: str | None

    def opened(self, dataset: stoker.Dataset, **fields: Any) -> stoker.Dataset:
        """Return the dataset as this side reads it."""
        if self.mode == LOCAL:
            return dataset
        return dataset.distribute(
            self.target, self.mode, data_transfer_protocol=self.protocol, **fields
        )


def throughput(element: Element, side: Side, seconds: float) -> Figure:
    """Return elements per second, with the CPU time of the trainer and the workers."""
    processes = [os.getpid(), *side.workers]
    with side.opened(element.stoker()).iterator() as iterator:
        element.check(next(iterator))
        read_for(iterator, WARM_SECONDS, element.read)
        cpu = cpu_seconds(processes)
        count, elapsed = read_for(iterator, seconds, element.read)
        cpu = cpu_seconds(processes) - cpu
    return Figure(count * element.weigh / elapsed, cpu=cpu / count / element.weigh * 1e6)


def first_element(element: Element, side: Side, seconds: float) -> Figure:
    """Return the milliseconds from `iter()` to the first element of a warm service."""
    distributed = side.opened(element.stoker())

    def once() -> float:
        began = time.perf_counter()
        with distributed.iterator() as iterator:
            next(iterator)
            return (time.perf_counter() - began) * 1e3

    return repeated(once, seconds)


def trainer_per_element(side: Side, seconds: float) -> Figure:
    """Return the CPU time of the trainer per element, which takes 20 ms and comes alone."""
    dataset = stoker.Dataset.range(ENDLESS).map(wait)
    with side.opened(dataset).iterator() as iterator:
        read_for(iterator, 2 * WARM_SECONDS)
        cpu = time.process_time()
        count, _ = read_for(iterator, seconds)
        return Figure((time.process_time() - cpu) / count * 1e6, "µs")


def _one_waits_longer() -> Callable[[int], int]:
    """Return `wait`, which takes ten times as long in the worker with the lowest process id."""
    others = [pid for pid in descendants(os.getppid()) if not descendants(pid)]
    times = SLOWER if os.getpid() == min(others) else 1

    def wait_longer(number: int) -> int:
        time.sleep(times * WAIT_SECONDS)
        return number

    return wait_longer


def beside_a_slow_worker(side: Side, seconds: float) -> Figure:
    """Return the rate of all workers, one of which is slow, relative to that of the others."""
    dataset = stoker.Dataset.range(ENDLESS).map(stoker.per_worker(_one_waits_longer))
    with side.opened(dataset).iterator() as iterator:
        read_for(iterator, 3 * WARM_SECONDS)
        count, elapsed = read_for(iterator, seconds)
    return Figure(count / elapsed * WAIT_SECONDS / (len(side.workers) - 1), "of others")


def epoch_of_ranks(side: Side, _: float) -> Figure:
    """Return rows per second of an epoch of shuffled rows, which ranks in processes read together.

    Raises:
        RuntimeError: if a row is lost or repeated.
    """
    dataset = stoker.Dataset.range(RANK_ROWS).shuffle(RANK_ROWS).batch(RANK_BATCH)
    context = multiprocessing.get_context("fork")
    counts = context.SimpleQueue()

    def read(rank: int) -> None:
        fields: dict[str, Any] = {"job_name": job_name}
        if side.mode == BY_POSITION:
            fields = {"consumer_index": rank, "num_consumers": RANKS}
        counts.put(sum(map(len, side.opened(dataset, **fields))))

    job_name = f"ranks {time.monotonic_ns()}"
    processes = [context.Process(target=read, args=(rank,)) for rank in range(RANKS)]
    began = time.perf_counter()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    elapsed = time.perf_counter() - began
    if any(process.exitcode for process in processes):
        raise RuntimeError("a rank failed; its error is above")
    count = sum(counts.get() for _ in processes)
    if not count or count % RANK_ROWS:  # the workers of "parallel_epochs" yield all rows each
        raise RuntimeError(f"{RANKS} ranks read {count:,} of {RANK_ROWS:,} rows")
    return Figure(count / elapsed)


def _not_skipped(number: int) -> int:
    if number < RESUMED:
        raise ValueError(f"the function was called for {number}, which a resumed epoch skips")
    return number


def _resumed(dataset: stoker.Dataset, position: int, side: Side) -> tuple[float, Any]:
    """Return the seconds from a state at `position` to the next element, and this element.

    The seed is new, so that the service has no copy of its draws.
    """
    dataset = dataset.with_options(stoker.Options(seed=time.monotonic_ns() % 2**31))
    with dataset.iterator() as local:
        state = local.state_dict() | {"position": position}
    began = time.perf_counter()
    with side.opened(dataset).iterator(state=state) as iterator:
        element = next(iterator)
        return time.perf_counter() - began, element


def resume(side: Side, _: float) -> Figure:
    """Return the milliseconds to the batch after 10^9 elements; the function is not called."""
    dataset = stoker.Dataset.range(ENDLESS).map(_not_skipped).batch(RESUMED_BATCH)
    seconds, batch = _resumed(dataset, RESUMED // RESUMED_BATCH, side)
    if batch[0] != RESUMED:
        raise RuntimeError(f"the first element is {batch[0]}, not {RESUMED}")
    return Figure(seconds * 1e3, "ms")


def resume_shuffled(side: Side, _: float) -> Figure:
    """Return the nanoseconds per row that a shuffle takes to the element after 10^8 rows."""
    dataset = stoker.Dataset.range(ENDLESS).shuffle(SHUFFLE_BUFFER)
    seconds, _ = _resumed(dataset, RESUMED_SHUFFLED, side)
    return Figure(seconds / RESUMED_SHUFFLED * 1e9, "ns")
