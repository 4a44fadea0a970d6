"""Find what limits the rate of a client of a service, from the evidence of its tasks."""

import statistics
from collections.abc import Callable, Sequence

from stoker.dataset.streams.measure.bottleneck import Bottleneck, consumer_bottleneck, seconds_text
from stoker.service.client.measure.reading import Reading
from stoker.service.client.measure.slow_worker import BUSY, percent, slow_workers
from stoker.service.client.measure.task_reading import TaskReading
from stoker.service.plurals import plural
from stoker.service.task_evidence import TaskEvidence
from stoker.wire.addresses import is_loopback, parse_address

STRAGGLING = 2.5
"""Time per element of one worker, to the median of the others, from which it is a straggler."""

IDLE = 0.2
"""Fraction of the time from which workers that had nothing to compute are a loss."""

FEW_REQUESTS = 4
"""Outstanding requests per worker; with fewer, each round trip counts."""

_ON_THIS_MACHINE = frozenset({"shm", "local"})

Pairs = Sequence[tuple[TaskReading, TaskEvidence]]
Rule = Callable[[Reading, Pairs], Bottleneck | None]


def find_bottleneck(reading: Reading) -> Bottleneck:
    """Return what limits the reader of a service: the reader itself, or the service."""
    return consumer_bottleneck(reading.own_read) or find_service_bottleneck(reading)


def find_service_bottleneck(reading: Reading) -> Bottleneck:
    """Return what limits the rate at which a service delivers, given that its reader waits."""
    reporting = [
        (task, task.while_waiting if _proves(task) else evidence)
        for task in reading.tasks
        if (evidence := task.evidence) is not None and not task.lost
    ]
    # The time of a task that has ended no longer delays the reader.
    running = [pair for pair in reporting if pair[0].waited_since_end is None] or reporting
    found = (rule(reading, running if runs else reporting) for rule, runs in _RULES)
    return next(filter(None, found))


def _straggler(reading: Reading, reporting: Pairs) -> Bottleneck | None:
    """Return a worker that is much slower than the others, if they have to wait for it."""
    if len(reporting) < 2:
        return None
    slowest, slow = max(reporting, key=lambda pair: _pace(pair[0]))
    others = [(task, x) for task, x in reporting if task is not slowest]
    # A slow worker harms nobody while the others have work: they must have been idle longer.
    idle = sum(_idle(*pair) for pair in others) - len(others) * _idle(slowest, slow)
    waits = reading.in_turns or idle >= IDLE * reading.waited * len(others)
    computed = [task for task, x in others if x.elements]
    if not waits or not computed or not _mostly(slow.computing, slow):
        return None
    # The median: a second slow worker must not hide the first, as a mean would let it.
    usual = statistics.median(map(_pace, computed))
    ratio = _pace(slowest) / max(usual, 1e-9)
    if ratio < STRAGGLING:
        return None
    times = f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}" if ratio < 1000 else "over 1,000"
    why = "whose turn all others wait for" if reading.in_turns else "while the others were idle"
    return reading.limited_by(
        "straggler",
        "One worker",
        f"and {slowest.worker}, {why}, took {seconds_text(_pace(slowest))} per element, {times} "
        f"times as long as the median of the {plural(len(others), 'other')}",
        "look for other load on that machine, or replace it (`stoker drain "
        f"{slowest.worker}`), unless its part of the data is more expensive",
        worker=slowest.worker,
    )


def _other_consumer(reading: Reading, running: Pairs) -> Bottleneck | None:
    """Return that another consumer of a coordinated read is slower, if workers wait for it."""
    if not running or not reading.in_turns:
        return None
    if any(_has_backlog(task) or not _mostly(x.put_wait, x) for task, x in running):
        return None
    return reading.limited_by(
        "trainer",
        "Another consumer",
        f"while {plural(len(running), 'worker')} waited for room for "
        f"{_share(running, 'put_wait')} of that time, although nothing waited there for this "
        "consumer",
        "look for the slowest consumer of this coordinated read",
    )


def _network(reading: Reading, running: Pairs) -> Bottleneck | None:
    """Return what delays elements that wait in most workers while the reader waits for some.

    Between processes of one machine there is no network, but elements wait for its processors. Only
    if these are free may an address on loopback be that of a tunnel.
    """
    sending = [(task, x) for task, x in running if x.chunks]
    ready = [
        (task, x)
        for task, x in sending
        if _has_backlog(task)
        or (not reading.in_turns and _mostly(x.put_wait, x))
        or (x.ended and task.waited_since_end is None)
        # It has sent all that it was asked for: that is on its way.
        or (reading.by_position and _mostly(x.split_wait, x))
    ]
    # In turns one worker with elements is enough: the reader waits for that worker alone.
    if not ready or len(ready) * (1 if reading.in_turns else 2) < len(sending):
        return None
    what, waited = "elements ready", f"for room for {_share(ready, 'put_wait')}"
    if reading.by_position:
        what = "sent what they were asked for"
        waited = f"to be asked for more for {_share(ready, 'split_wait')}"
    where = f"{plural(len(ready), 'worker')} of {len(running)} had {what} (they waited {waited} "
    where += "of that time)"
    if reading.load.is_high and all(_is_on_this_machine(task) for task, _ in ready):
        return _busy_machine(reading, where)
    # Workers may be reached by several transports: the one that carried most bytes is named.
    protocol = max((task for task, _ in ready), key=lambda task: task.bytes).protocol or "network"
    here = protocol in _ON_THIS_MACHINE
    rate = _rate_text(reading.bytes, reading.seconds)
    return reading.limited_by(
        "pipeline" if here else "network",
        "Receiving in this process" if here else "The network",
        f"while {where}; {protocol} delivered {rate} on average",
        _network_advice(reading, len(running), protocol),
    )


def _rate_text(nbytes: int, seconds: float) -> str:
    """Return a rate in bytes per second, such as "2.0 MB/s"."""
    rate = nbytes / seconds if seconds > 0 else 0.0
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if rate >= scale:
            return f"{rate / scale:.1f} {unit}/s"
    return f"{rate / 1e3:.1f} kB/s"


def _busy_machine(reading: Reading, where: str) -> Bottleneck:
    """Return that the processors of the reader's machine are the limit."""
    load = reading.load
    return reading.limited_by(
        "machine",
        "The trainer's machine",
        f"while {where}, and threads there had to wait for a processor (load average of one "
        f"minute: {load.average:.1f}, processors: {load.processors})",
        "end other programs there, run fewer worker processes there, or run workers on other "
        "machines",
    )


def _is_on_this_machine(task: TaskReading) -> bool:
    host, _ = parse_address(task.worker)
    return task.protocol in _ON_THIS_MACHINE or is_loopback(host)


def _network_advice(reading: Reading, workers: int, protocol: str) -> str:
    limit = reading.max_outstanding_requests
    # First the cause that costs nothing to remove.
    if limit is not None and limit < FEW_REQUESTS * workers:
        return (
            f"raise max_outstanding_requests, which is {limit}, so that elements are sent while "
            "others are consumed"
        )
    if protocol in _ON_THIS_MACHINE:
        return (
            "make larger batches on the workers, and look for another thread here that holds the "
            "GIL"
        )
    if protocol == "grpc":
        return 'read by data_transfer_protocol="tcp", which is faster, or send smaller dtypes'
    return (
        'send fewer bytes, by smaller dtypes (uint8 for images) or compression="ZSTD", or run '
        "workers on the trainer's machine, with which it shares memory"
    )


def _splits(reading: Reading, reporting: Pairs) -> Bottleneck | None:
    """Return that there are too few splits, if workers lack some while others compute."""
    # Idle workers prove nothing unless others compute meanwhile.
    idle = [pair for pair in reporting if _idle(*pair) >= IDLE * reading.waited]
    computing = [x for task, x in reporting if _mostly(x.computing, x) and (task, x) not in idle]
    idle_seconds = sum(_idle(*pair) for pair in idle)
    share = idle_seconds / max(reading.waited * len(reporting), 1e-9)
    if not reading.assigns_splits or not computing or share < IDLE:
        return None
    splits = {number: n for _, x in reporting for number, n in x.splits.items()}
    source = min(splits, key=lambda number: splits[number], default=None)
    stage = next((s for x in computing for s in x.stages if s.number == source), None)
    count = splits.get(-1 if source is None else source, 0)
    return Bottleneck(
        "splits",
        f"There are too few splits: {reading.waited_text}, and "
        f"{'the source' if stage is None else stage.label} has "
        f"{plural(count, 'split')} for {plural(len(reporting), 'worker')}, of which "
        f"{len(idle)} had none for {percent(idle_seconds, reading.waited * len(idle))} of that "
        'time; divide the data into more files, or use processing_mode="parallel_epochs" if each '
        "worker may yield the whole dataset.",
        site="" if stage is None else stage.site,
    )


def _unknown(reading: Reading, reporting: Pairs) -> Bottleneck:
    """Return that no part of the service was busy, or that none has reported."""
    if not reporting:
        silent = sum(not task.lost for task in reading.tasks)
        return Bottleneck(
            "unknown",
            f"The service limits training: {reading.waited_text}, but no worker has reported yet "
            f"where its time goes ({plural(silent, 'worker')}).",
        )
    idle = "to be asked for elements" if reading.by_position else "for splits"
    where = (
        f"{plural(len(reporting), 'worker')} computed for {_share(reporting, 'computing')}, waited "
        f"for room for {_share(reporting, 'put_wait')}, waited {idle} for "
        f"{_share(reporting, 'split_wait')} of that time"
    )
    if reading.load.is_high:
        return _busy_machine(reading, where)
    return reading.limited_by(
        "unknown",
        "The service",
        f"but no part of it was busy: {where}",
        "run `stoker doctor` with the address of the dispatcher on the trainer's machine, which "
        "measures how fast elements arrive from each worker",
    )


_RULES: tuple[tuple[Rule, bool], ...] = (
    (_straggler, False),
    (_other_consumer, True),
    (_network, True),
    (_splits, False),
    (slow_workers, True),
    (_unknown, False),
)
"""Rules, and whether a rule judges only the tasks that run; the first that finds a limit counts."""


def _share(pairs: Pairs, name: str) -> str:
    """Return the fraction of the time of some tasks that is in a field of their evidence."""
    return percent(sum(getattr(x, name) for _, x in pairs), sum(x.seconds for _, x in pairs))


def _proves(task: TaskReading) -> bool:
    """Return False for a task that runs and was not seen while the reader waited.

    Of one that has ended, the times in which the reader did not wait prove nothing.
    """
    return task.while_waiting.seconds > 0 or task.waited_since_end is not None


def _pace(task: TaskReading) -> float:
    """Return the seconds of computation per element; of one that computes its first, until now."""
    # Of the whole time, pauses of the trainer included: the pace does not depend on the reader.
    evidence = task.evidence or TaskEvidence()
    return evidence.computing / max(1, evidence.elements)


def _mostly(seconds: float, evidence: TaskEvidence) -> bool:
    return evidence.seconds > 0 and seconds >= BUSY * evidence.seconds


def _idle(task: TaskReading, evidence: TaskEvidence) -> float:
    """Return the seconds of the reader's waiting in which the task had nothing to compute."""
    return (task.waited_since_end or 0.0) + evidence.split_wait


def _has_backlog(task: TaskReading) -> bool:
    return task.backlog_while_waiting >= BUSY
