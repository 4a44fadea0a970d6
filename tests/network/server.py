"""A dispatcher or worker in this process: `python -m tests.network.server KIND FIELDS`.

FIELDS are those of its configuration, in JSON. The command line would start a worker in two
processes, which takes twice as long.
"""

import json
import logging
import sys

from stoker.service import DispatchServer, WorkerServer
from stoker.service.process.shutdown import StopRequest


def main(kind: str, fields: str) -> None:
    """Serve until SIGTERM; print the address."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with StopRequest() as stop:
        if kind == "dispatcher":
            with DispatchServer(**json.loads(fields)) as dispatcher:
                print(f"serves at {dispatcher.target.removeprefix('grpc://')}", flush=True)
                stop.wait()
        else:
            with WorkerServer(**json.loads(fields)) as worker:
                print(f"serves at {worker.address}", flush=True)
                stop.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
