"""CPU time of the dispatcher's logic with many workers, without sockets.

    python benchmarks/bench_dispatcher.py [--workers 10000] [--clients 10] [--jobs 1]

One epoch of DYNAMIC jobs: CPU time of each part, and of the longest call of the logic in it, during
which no other session is served. The garbage collector is off.
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
from tests.scale.cluster import Cluster


def main() -> None:
    """Run one epoch of each job and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=10, help="of each job")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    gc.disable()
    print(machine())
    print("| part | CPU s | longest call, ms | us per task and recipient |")
    print("| --- | --- | --- | --- |")
    cluster = Cluster(10**9)
    began = time.thread_time()

    def report(part: str, count: int) -> None:
        nonlocal began
        cluster.work()
        seconds = time.thread_time() - began
        longest = max(cluster.longest.values()) * 1e3
        print(f"| {part} | {seconds:.2f} | {longest:.1f} | {seconds / count * 1e6:.1f} |")
        cluster.longest.clear()
        began = time.thread_time()

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
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB")


if __name__ == "__main__":
    main()
