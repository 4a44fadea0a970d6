"""A dispatcher with many workers: its logic without sockets, and a process with their sessions.

    python benchmarks/bench_dispatcher.py [--workers 10000] [--clients 10] [--jobs 1]
        [--files 10000000] [--sessions 5000]

First a dispatcher in a process of its own, with sessions from this process: the delay from the time
at which a heartbeat is due until it is handled, and the dispatcher's CPU time, while the sessions
are opened, 200 at a time, and in the 20 s after.

Then one epoch of DYNAMIC jobs: CPU time of each part, and of the longest call of the logic in it,
during which no other session is served. Then the list of the files of another job, which a worker
sends in pages. The garbage collector is off.
"""

import argparse
import gc
import resource
import sys
import time
from pathlib import Path

from harness import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from stoker.service import messages as m
from tests.scale.cluster import LISTED, Cluster, FileLister
from tests.scale.raw_sessions import RawSessions
from tests.scale.test_session_scale import AT_A_TIME, watched_dispatcher


def main() -> None:
    """Run one epoch of each job and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=10, help="of each job")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--files", type=int, default=10_000_000)
    parser.add_argument("--sessions", type=int, default=5_000)
    arguments = parser.parse_args()
    print(machine())
    measure_sessions(arguments.sessions)  # first: a child's memory is at least that of its parent
    gc.disable()
    print("| part | CPU s | longest call, ms | us per task, recipient or file |")
    print("| --- | --- | --- | --- |")
    cluster = Cluster(10**9)

    def report(part: str, count: int) -> None:
        cluster.work()
        seconds, longest = cluster.seconds, max(cluster.longest.values()) * 1e3
        print(f"| {part} | {seconds:.2f} | {longest:.1f} | {seconds / count * 1e6:.2f} |")
        cluster.longest.clear()
        cluster.seconds = 0.0

    workers, clients, jobs = arguments.workers, arguments.clients, arguments.jobs
    cluster.add_workers(workers)
    report("workers register", workers)
    peers = [x for k in range(jobs) for x in cluster.add_clients(clients, f"job {k}")]
    cluster.work()
    tasks = list(cluster.running())
    readings = sum(len(cluster.tasks[peer]) for peer in peers)
    # Each worker that has no task is looked at, too.
    report(f"{len(tasks)} tasks start", workers * jobs + len(tasks) + readings)
    for peer, start in tasks:
        cluster.say(peer, m.SplitRequest(start.task_id, 0, 0, want=8))
    report("each task gets splits", len(tasks))
    for delivered in (False, True):
        for peer, start in tasks:
            cluster.say(peer, m.TaskProgress(start.task_id, True, delivered))
    report("tasks end", len(tasks) + readings)
    for peer in peers:
        cluster.say(peer, m.ClientClose())
    report("clients close", readings)
    cluster = Cluster(LISTED)
    cluster.add_workers(1)
    cluster.add_clients(1, "files")
    FileLister(cluster, arguments.files).run()
    report("a worker lists files", arguments.files)
    [(peer, start)] = cluster.running()
    cluster.say(peer, m.TaskProgress(start.task_id, exhausted=True, delivered=True))
    for _ in range(arguments.files // 100_000):
        cluster.tick()
    report("the list is dropped", arguments.files)
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB")


def measure_sessions(count: int) -> None:
    """Print a table of the delays of heartbeats."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("| sessions | s | heartbeats | delay p50, ms | p99, ms | most, ms | CPU, s | MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with watched_dispatcher() as dispatcher:
        began = time.monotonic()
        sessions = RawSessions(("127.0.0.1", dispatcher.port), count, AT_A_TIME)

        def report(part: str) -> None:
            nonlocal began
            found, seconds = dispatcher.measure(), time.monotonic() - began
            p50, p99, most = (found.delay(share) * 1e3 for share in (0.5, 0.99, 1.0))
            print(
                f"| {count} {part} | {seconds:.1f} | {len(found.delays)} | {p50:.1f} | {p99:.0f} | "
                f"{most:.0f} | {found.cpu:.2f} | {found.memory} |"
            )
            began = time.monotonic()

        sessions.open_all(began + 600)
        report("opened")
        sessions.run(time.monotonic() + 20)
        report("open")
        assert not sessions.ended
        sessions.close()
    print()


if __name__ == "__main__":
    main()
