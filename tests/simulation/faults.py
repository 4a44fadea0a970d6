"""Faults of a scenario, drawn from its seed."""

import random
from dataclasses import dataclass
from typing import TypeAlias

from stoker.service.dispatcher.logic import RETURN_SECONDS

SHORT_SECONDS = 0.8
"""Freezes and partitions that take less time together cost no lease and break no connection."""

LONGEST_SECONDS = 7.0
"""The longest freeze or partition: longer than each lease, shorter than clients wait."""


@dataclass(frozen=True)
class Crash:
    """The death of a worker at time `at`, and its restart after `back` seconds unless ``None``.

    `reported`: seconds after which its supervisor reports the death, or ``None``; `silent`: its
    host dies with it, so no connection is closed.
    """

    worker: int
    at: float
    back: float | None
    same_address: bool
    reported: float | None
    silent: bool = False


@dataclass(frozen=True)
class Drain:
    """A worker that drains at time `at`, and its successor after `back` seconds unless ``None``.

    `asked`: an operator asks the dispatcher for it; otherwise the worker is sent SIGTERM, and
    stops after `grace` seconds at the latest.
    """

    worker: int
    at: float
    back: float | None
    asked: bool = False
    grace: float = 60.0


@dataclass(frozen=True)
class Cancel:
    """An operator cancels the job at time `at`; clients that come later begin it anew."""

    at: float


@dataclass(frozen=True)
class ClientCrash:
    """The death of a client, while others may read on; `silent` as in `Crash`."""

    client: int
    at: float
    silent: bool = False


@dataclass(frozen=True)
class Freeze:
    """The processes of a host do nothing for a time, as between SIGSTOP and SIGCONT."""

    host: str
    at: float
    seconds: float


@dataclass(frozen=True)
class Partition:
    """Nothing that `source` sends reaches `target` for a time; and nothing back, if `both`."""

    source: str
    target: str
    at: float
    seconds: float
    both: bool


@dataclass(frozen=True)
class Breaks:
    """Connections break at random, so many a second."""

    rate: float


@dataclass(frozen=True)
class DispatcherCrash:
    """The death of the dispatcher, and its restart from the journal; `silent` as in `Crash`.

    `breaks` of its sessions break shortly before: what was not durable then is announced again.
    """

    at: float
    back: float
    silent: bool
    breaks: int


@dataclass(frozen=True)
class DiskFull:
    """The disk of the journal is full for a time; `back` seconds later the dispatcher starts."""

    at: float
    seconds: float
    back: float


@dataclass(frozen=True)
class TakeOver:
    """The dispatcher is frozen for `seconds`; after `back` seconds another opens its journal."""

    at: float
    seconds: float
    back: float


@dataclass(frozen=True)
class JournalCut:
    """The journal loses its last `units` while the dispatcher is down, for `back` seconds."""

    at: float
    back: float
    units: int


Fault: TypeAlias = (
    Crash
    | Drain
    | Cancel
    | ClientCrash
    | Freeze
    | Partition
    | Breaks
    | DispatcherCrash
    | DiskFull
    | TakeOver
    | JournalCut
)

KINDS = {
    "none": 3,
    "breaks": 4,
    "crash": 2,
    "breaks and crash": 2,
    "client crash": 2,
    "drain": 3,
    "drain and breaks": 2,
    "cancel": 2,
    "cancel and breaks": 2,
    "freeze": 2,
    "partition": 2,
    "stall": 2,
    "short": 2,
    "dispatcher": 5,
    "dispatcher and breaks": 2,
    "disk full": 1,
    "replaced": 1,
    "take over": 2,
    "journal cut": 2,
    "mixed": 5,
}
"""The kinds of scenarios, by their weight."""


def draw_faults(rng: random.Random, workers: int, clients: int) -> tuple[str, tuple[Fault, ...]]:
    """Return a kind of scenario and its faults."""
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    hosts = [f"W{k}" for k in range(workers)] + [f"C{k}" for k in range(clients)]
    faults: list[Fault] = []
    if "breaks" in kind or (kind == "mixed" and rng.random() < 0.5):
        faults.append(Breaks(rng.choice([0.5, 2, 8])))
    if kind in ("crash", "breaks and crash") or (kind == "mixed" and rng.random() < 0.3):
        faults += _draw_crashes(rng, workers)
    else:
        faults += _draw_operations(rng, kind, workers)
    if kind == "client crash" or (kind == "mixed" and rng.random() < 0.3):
        doomed = rng.sample(range(clients), rng.randint(1, clients))
        faults += [ClientCrash(k, rng.uniform(0, 1.0), rng.random() < 0.3) for k in doomed]
    if kind == "freeze" or (kind == "mixed" and rng.random() < 0.5):
        faults += [_draw_freeze(rng, rng.choice(hosts)) for _ in range(rng.choice([1, 1, 2]))]
    if kind == "partition" or (kind == "mixed" and rng.random() < 0.5):
        faults += [_draw_partition(rng, workers, clients) for _ in range(rng.choice([1, 1, 2]))]
    if kind == "stall" or (kind == "mixed" and rng.random() < 0.3):
        faults.append(_draw_freeze(rng, "D"))
    if (
        kind == "replaced"
        or kind.startswith("dispatcher")
        or (kind == "mixed" and rng.random() < 0.5)
    ):
        faults += [_draw_dispatcher_crash(rng) for _ in range(rng.choice([1, 1, 2, 3, 5]))]
    if kind == "disk full" or (kind == "mixed" and rng.random() < 0.2):
        faults.append(DiskFull(rng.uniform(0, 1.0), rng.uniform(0, 3.0), rng.uniform(0, 1.0)))
    if kind == "take over" or (kind == "mixed" and rng.random() < 0.2):
        seconds = rng.uniform(0.1, LONGEST_SECONDS)
        faults.append(TakeOver(rng.uniform(0, 1.0), seconds, rng.uniform(0, seconds)))
    if kind == "journal cut":
        units = rng.choice([1, 1, 2, 5, 20, 100])
        faults.append(JournalCut(rng.uniform(0, 2.0), rng.uniform(0, 0.5), units))
    if kind == "short":
        faults += _draw_short(rng, hosts, workers, clients)
    return kind, tuple(faults)


def _draw_crashes(rng: random.Random, workers: int) -> list[Fault]:
    # At least one worker survives or restarts; otherwise the epoch could not end.
    faults: list[Fault] = []
    for k, worker in enumerate(rng.sample(range(workers), rng.randint(1, workers))):
        back = rng.uniform(0.1, 3.0) if k == workers - 1 or rng.random() < 0.5 else None
        reported = rng.choice([0.05, 0.05, 1.0, 3.0]) if rng.random() < 0.3 else None
        same_address, silent = rng.random() < 0.5, rng.random() < 0.2
        at = rng.uniform(0, 1.5)
        faults.append(Crash(worker, at, back, same_address, reported, silent))
    return faults


def _draw_operations(rng: random.Random, kind: str, workers: int) -> list[Fault]:
    """Return what an operator does."""
    faults: list[Fault] = []
    if kind.startswith("drain") or (kind == "mixed" and rng.random() < 0.3):
        faults += _draw_drains(rng, workers)
    if kind.startswith("cancel") or (kind == "mixed" and rng.random() < 0.2):
        faults.append(Cancel(rng.uniform(0, 1.5)))
    return faults


def _draw_drains(rng: random.Random, workers: int) -> list[Fault]:
    faults: list[Fault] = []
    for k, worker in enumerate(rng.sample(range(workers), rng.randint(1, workers))):
        back = rng.uniform(0.0, 3.0) if k == workers - 1 or rng.random() < 0.5 else None
        faults.append(Drain(worker, rng.uniform(0, 1.0), back, rng.random() < 0.5))
    return faults


def _draw_dispatcher_crash(rng: random.Random) -> DispatcherCrash:
    # Longer than clients wait for a dispatcher without a journal, sometimes.
    shortest, longest = rng.choices([(0, 0.1), (0, 2), (8, 25)], [5, 5, 1])[0]
    back = rng.uniform(shortest, longest)
    return DispatcherCrash(
        rng.uniform(0, 3.0), back, rng.random() < 0.2, rng.choice([0, 0, 1, 3, 6])
    )


def _draw_freeze(rng: random.Random, host: str, longest: float = LONGEST_SECONDS) -> Freeze:
    return Freeze(host, rng.uniform(0, 1.0), rng.uniform(0.1, longest))


def _draw_partition(
    rng: random.Random, workers: int, clients: int, longest: float = LONGEST_SECONDS
) -> Partition:
    worker, client = f"W{rng.randrange(workers)}", f"C{rng.randrange(clients)}"
    pair = rng.choice([("D", worker), ("D", worker), ("D", client), (client, worker)])
    source, target = pair if rng.random() < 0.5 else pair[::-1]
    seconds = rng.uniform(0.1, longest)
    return Partition(source, target, rng.uniform(0, 1.0), seconds, rng.random() < 0.3)


def _draw_short(rng: random.Random, hosts: list[str], workers: int, clients: int) -> list[Fault]:
    count = rng.randint(1, 3)
    longest = SHORT_SECONDS / count
    return [
        _draw_freeze(rng, rng.choice(["D", *hosts]), longest)
        if rng.random() < 0.5
        else _draw_partition(rng, workers, clients, longest)
        for _ in range(count)
    ]


def impaired_seconds(faults: tuple[Fault, ...], host: str = "") -> float:
    """Return the time in which freezes and partitions impair a host, or any; not the dispatcher."""
    return sum(
        fault.seconds
        for fault in faults
        if (isinstance(fault, Freeze) and (fault.host == host or (not host and fault.host != "D")))
        or (isinstance(fault, Partition) and host in ("", fault.source, fault.target))
    )


def last_end(faults: tuple[Fault, ...]) -> float:
    """Return the time at which freezes, partitions and stops of the dispatcher have ended."""
    ends = [0.0]
    for fault in faults:
        match fault:
            case Freeze() | Partition() | TakeOver():
                ends.append(fault.at + fault.seconds)
            case DispatcherCrash(at=at, back=back):
                ends.append(at + back)
            case DiskFull(at, seconds, back):
                ends.append(at + seconds + back)
            case JournalCut(at, back):
                ends.append(at + back + RETURN_SECONDS + 1.0)
    return max(ends)


def stops_dispatcher(faults: tuple[Fault, ...]) -> bool:
    """Return whether calls to the dispatcher may fail for long."""
    return any(
        isinstance(x, DispatcherCrash | DiskFull | TakeOver | JournalCut)
        or (isinstance(x, Freeze) and x.host == "D")
        for x in faults
    )
