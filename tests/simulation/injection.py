"""The execution of faults on a simulated cluster."""

from collections.abc import Callable

from stoker.service import messages as m
from tests.simulation.cluster import Cluster
from tests.simulation.faults import (
    Breaks,
    Cancel,
    ClientCrash,
    Crash,
    DiskFull,
    DispatcherCrash,
    Drain,
    Fault,
    Freeze,
    JournalCut,
    Partition,
    TakeOver,
)
from tests.simulation.process import Process
from tests.simulation.worker import SimWorker

ASK_SECONDS = 30.0
"""Time for which an operator repeats a request."""

BREAK_SECONDS = 0.4
"""Longest time between the break of a session and the crash of the dispatcher."""


def schedule(fault: Fault, cluster: Cluster) -> None:
    """Schedule a fault."""
    world = cluster.world
    match fault:
        case Crash() | Drain() | Cancel() | ClientCrash():
            world.after(fault.at, lambda: _strike_process(fault, cluster))
        case Freeze(host, at, seconds):
            world.after(at, lambda: cluster.freeze(host, seconds))
        case Partition(source, target, at, seconds, both):
            world.after(at, lambda: world.block(source, target, seconds))
            if both:
                world.after(at, lambda: world.block(target, source, seconds))
        case Breaks(rate):
            _break_links(cluster, 1 / rate)
        case DispatcherCrash(at, back, silent, breaks):
            for _ in range(breaks):
                before = world.rng.uniform(0.0, BREAK_SECONDS)
                world.at(max(0.0, at - before), lambda: _break_session(cluster))
            world.at(at, lambda: cluster.dispatcher.crash(back, silently=silent))
        case TakeOver(at, seconds, back):
            world.after(at, lambda: cluster.freeze("D", seconds))
            world.after(at + back, cluster.dispatcher.take_over)
        case JournalCut(at, back, units):
            world.at(at, lambda: cluster.dispatcher.cut_journal(units, back))
        case DiskFull():
            world.after(fault.at, lambda: _fill_disk(fault, cluster))


def _strike_process(fault: Crash | Drain | Cancel | ClientCrash, cluster: Cluster) -> None:
    match fault:
        case Crash():
            _crash(fault, cluster)
        case Drain():
            _drain(fault, cluster)
        case Cancel():
            _cancel(cluster)
        case ClientCrash(client, _, silent):
            _crash_client(cluster, client, silent=silent)


def _crash(crash: Crash, cluster: Cluster) -> None:
    worker = cluster.worker_of(crash.worker)
    if worker is None or not worker.alive:
        return
    identity, address = worker.identity, worker.address
    worker.crash(silently=crash.silent)
    world = cluster.world
    if crash.reported is not None and identity is not None:
        world.after(crash.reported, lambda: cluster.dispatcher.report_death(identity))
    if crash.back is not None:
        new = address if crash.same_address else f"{address}b"
        world.after(crash.back, lambda: cluster.start_worker(crash.worker, new))


def _drain(drain: Drain, cluster: Cluster) -> None:
    worker = cluster.worker_of(drain.worker)
    if worker is None or not worker.alive:
        return
    if drain.asked:
        _ask_to_drain(worker, cluster)
    else:
        worker.process.run(lambda: worker.drain(drain.grace))
    if drain.back is not None:
        new = f"{worker.address}b"
        cluster.world.after(drain.back, lambda: cluster.start_worker(drain.worker, new))


def _ask_to_drain(worker: SimWorker, cluster: Cluster) -> None:
    """Ask the dispatcher, until it answers that the worker drains."""
    cluster.world.note(f"       an operator asks {worker.name} to drain")
    request = m.DrainWorker(worker.address)
    _insist(cluster, request, lambda: cluster.asked.append(worker), lambda: worker.alive)


def _cancel(cluster: Cluster) -> None:
    """Cancel the job as soon as there is one."""
    cluster.world.note("       an operator cancels the job")
    _insist(cluster, m.CancelJob("job"), lambda: None, lambda: not cluster.all_left)


def _insist(
    cluster: Cluster, request: m.Request, done: Callable[[], None], wanted: Callable[[], bool]
) -> None:
    """Repeat a request until the dispatcher has done it, or it is not wanted any more."""
    world, operator = cluster.world, Process(cluster.world, "operator")
    until = world.now + ASK_SECONDS

    def answered(reply: m.Reply | None) -> None:
        if isinstance(reply, m.Done):
            done()
        elif wanted() and world.now < until:  # the dispatcher is away, or has no such thing yet
            world.after(world.rng.uniform(0.1, 0.5), ask)

    def ask() -> None:
        cluster.dispatcher.call(operator, request, answered)

    ask()


def _fill_disk(fault: DiskFull, cluster: Cluster) -> None:
    disk = cluster.dispatcher.disk
    assert disk is not None
    disk.full = True
    cluster.world.note("       the disk is full")

    def free() -> None:
        disk.full = False
        cluster.world.note("       the disk has room")

    cluster.world.after(fault.seconds, free)
    cluster.world.after(fault.seconds + fault.back, cluster.dispatcher.restart)


def _break_session(cluster: Cluster) -> None:
    """Break a session of the dispatcher, noticed at once."""
    process = cluster.dispatcher.process
    sessions = [
        link for link in cluster.world.links if link.alive and link.sides[1].process is process
    ]
    if sessions:
        rng = cluster.world.rng
        rng.choice(sessions).break_((rng.uniform(0, 0.01), rng.uniform(0, 0.1)))


def compact(cluster: Cluster) -> None:
    """Compact the journal at random until all clients have left."""
    disk, pause = cluster.dispatcher.disk, cluster.scenario.compaction_pause
    if disk is None or pause is None:
        return

    def step() -> None:
        if not cluster.all_left:
            disk.compact()
            cluster.world.after(cluster.world.rng.expovariate(1 / pause), step)

    cluster.world.after(cluster.world.rng.expovariate(1 / pause), step)


def _crash_client(cluster: Cluster, client: int, *, silent: bool) -> None:
    for each in cluster.clients:
        if each.process.host == f"C{client}":
            each.crash(silently=silent)


def _break_links(cluster: Cluster, pause: float) -> None:
    """Break connections at random until all clients have left or 20 s have passed."""
    world = cluster.world

    def strike() -> None:
        if world.now > 20 or cluster.all_left:
            return
        alive = [link for link in world.links if link.alive]
        if alive:
            rng = world.rng
            cluster.broken += 1
            slow = 1.0 if rng.random() < 0.2 else 0.1
            rng.choice(alive).break_((rng.uniform(0, 0.1), rng.uniform(0, slow)))
        world.after(world.rng.expovariate(1 / pause), strike)

    world.after(world.rng.expovariate(1 / pause), strike)
