"""CPU time of the dispatcher's logic with many workers, without sockets.

    python benchmarks/bench_dispatcher.py [--workers 10000] [--clients 10] [--files 10000000]

One epoch of a DYNAMIC job that every worker runs and every client reads: CPU time of each part, and
of the longest call of the logic in it, during which no other session is served. Then the list of
the files of another job, which a worker sends in pages. The garbage collector is off.
"""

import argparse
import gc
import resource
import sys
from pathlib import Path

from harness import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from stoker.dataset.tree.splits import ListedSplits
from stoker.service import messages as m
from tests.scale.cluster import Cluster, FileLister


def main() -> None:
    """Run one epoch and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--files", type=int, default=10_000_000)
    arguments = parser.parse_args()
    gc.disable()
    print(machine())
    print("| part | CPU s | longest call, ms | us per task, recipient or file |")
    print("| --- | --- | --- | --- |")
    cluster = Cluster(10**9)

    def report(part: str, count: int) -> None:
        cluster.work()
        seconds, longest = cluster.seconds, max(cluster.longest.values()) * 1e3
        print(f"| {part} | {seconds:.2f} | {longest:.1f} | {seconds / count * 1e6:.1f} |")
        cluster.longest.clear()
        cluster.seconds = 0.0

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
    cluster = Cluster(ListedSplits())
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


if __name__ == "__main__":
    main()
