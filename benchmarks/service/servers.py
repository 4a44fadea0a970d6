"""Server processes with a dispatcher and workers, for both systems.

A server process prints one JSON line, ``{"target": ..., "workers": [pid, ...]}``, and serves until
its stdin ends.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from service.processes import worker_processes


def serve_stoker(workers: int, _: str) -> None:
    """Serve with child processes, as ``stoker worker`` runs them, with their tuned allocator."""
    import stoker

    with stoker.LocalCluster(workers) as cluster:
        _announce(cluster.target, worker_processes(os.getpid()))
        sys.stdin.read()


def serve_stoker_by_grpc(workers: int, _: str) -> None:
    """Serve by gRPC only, with the dispatcher and the workers in this process."""
    from stoker.service import DispatchServer, WorkerConfig, WorkerServer

    sys.setswitchinterval(0.0005)  # as in the processes of `stoker worker`
    with ExitStack() as stack:
        dispatcher = stack.enter_context(DispatchServer())
        config = WorkerConfig(
            dispatcher_address=dispatcher.target.split("://")[1], data_transfer_protocol="grpc"
        )
        for _number in range(workers):
            stack.enter_context(WorkerServer(config))
        _announce(dispatcher.target, [os.getpid()])
        sys.stdin.read()


def serve_tensorflow(workers: int, script: str) -> None:
    """Serve with one worker in the dispatcher's process, and each further one in its own."""
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    command = [sys.executable, script, "--serve", "tf.data worker", address]
    others = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(workers - 1)
    ]
    for other in others:
        assert other.stdout is not None
        other.stdout.readline()
    _announce(dispatcher.target, [os.getpid(), *(other.pid for other in others)])
    sys.stdin.read()
    del worker


def serve_tensorflow_worker(address: str, _: str) -> None:
    """Serve with one more worker."""
    import tensorflow as tf

    service = tf.data.experimental.service
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    print(flush=True)
    sys.stdin.read()
    del worker


def _announce(target: str, workers: list[int]) -> None:
    print(json.dumps({"target": target, "workers": workers}), flush=True)


def serve(system: str, argument: str) -> None:
    """Run the process of `bench_service.py --serve SYSTEM ARGUMENT`."""
    script = str(Path(sys.argv[0]).resolve())
    if system == "tf.data worker":
        serve_tensorflow_worker(argument, script)
    else:
        SERVERS[system](int(argument), script)
    os._exit(0)  # TensorFlow's servers wait for their clients


SERVERS: dict[str, Callable[[int, str], None]] = {
    "stoker": serve_stoker,
    "stoker, gRPC": serve_stoker_by_grpc,
    "tf.data service": serve_tensorflow,
}
