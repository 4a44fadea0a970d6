"""CPU time of the dispatcher's logic with many workers, without sockets.

    python benchmarks/bench_dispatcher.py [--workers 10000] [--clients 10]

One epoch of a DYNAMIC job that every worker runs and every client reads: CPU time of each part, and
of the longest call of the logic in it, during which no other session is served. The garbage
collector is off.
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
    """Run one epoch and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=10)
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

    workers, clients = arguments.workers, arguments.clients
    cluster.add_workers(workers)
    report("workers register", workers)
    peers = cluster.add_clients(clients, "job")
    report("tasks start", workers * (1 + clients))
    tasks = list(cluster.running())
    for peer, start in tasks:
        cluster.say(peer, m.SplitRequest(start.task_id, 0, 0, want=8))
    report("each task gets splits", workers)
    for delivered in (False, True):
        for peer, start in tasks:
            cluster.say(peer, m.TaskProgress(start.task_id, True, delivered))
    report("tasks end", workers)
    for peer in peers:
        cluster.say(peer, m.ClientClose())
    report("clients close", workers * clients)
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB")


if __name__ == "__main__":
    main()
