"""Kill the dispatcher within an epoch and start it again: each element still arrives once.

Shows: a journal (`stoker dispatcher --work-dir DIR`); trainers and workers wait and go on.
One machine: python examples/dispatcher_restart.py
Several: let systemd or Kubernetes restart the dispatcher with the same `--work-dir`, which may
be in a bucket (docs/reliability.md, docs/deployment.md); workers and trainers need nothing.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import stoker

ELEMENTS = 4_000


@contextlib.contextmanager
def server(*command: str) -> Iterator["subprocess.Popen[str]"]:
    """Run `stoker COMMAND` until the end of the `with` block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stoker", *command], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def slow(i: int) -> int:
    time.sleep(0.001)
    return i


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(tempfile.TemporaryDirectory())
        first = stack.enter_context(server("dispatcher", "--work-dir", journal, "--port", "0"))
        assert first.stdout is not None
        target = first.stdout.readline().split()[
            -1
        ]  # "dispatcher serves at grpc://localhost:40123"
        port = target.rpartition(":")[2]
        stack.enter_context(server("worker", "--dispatcher", target, "--processes", "2"))
        dataset = (
            stoker.Dataset.range(ELEMENTS)
            .map(slow)
            .distribute(target, processing_mode="distributed_epoch")
        )
        received = []
        for element in dataset:
            received.append(element)
            if len(received) == ELEMENTS // 10:
                first.kill()  # as kill -9: it writes and says nothing more
                first.wait()
                print(f"the dispatcher was killed after {len(received):,} elements", flush=True)
                stack.enter_context(server("dispatcher", "--work-dir", journal, "--port", port))
                print("another one goes on from its journal", flush=True)
    print(f"{len(received):,} elements arrived, {len(set(received)):,} different ones")
    assert sorted(received) == list(range(ELEMENTS))


if __name__ == "__main__":
    main()
