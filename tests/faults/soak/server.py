"""A process of the soak: ``python -m tests.faults.soak.server dispatcher|worker FIELDS``.

FIELDS are those of the configuration, as JSON; those of a dispatcher may have `compaction_bytes`,
the growth after which its journal is compacted. It prints one JSON line when it serves, and ends on
SIGTERM as `stoker dispatcher` and `stoker worker` do, or when its standard input ends.
"""

import json
import logging
import sys
import threading
from typing import Any

from stoker.service import DispatcherConfig, DispatchServer, WorkerConfig
from stoker.service.journal import sqlite_store
from stoker.service.process.shutdown import StopRequest
from stoker.service.worker.processes.process import GRACE
from stoker.service.worker.processes.supervisor import Supervisor

logger = logging.getLogger(__name__)


def _run_dispatcher(fields: dict[str, Any], stop: StopRequest) -> int:
    if "compaction_bytes" in fields:
        vars(sqlite_store)["COMPACTION_BYTES"] = fields.pop("compaction_bytes")
    server = DispatchServer(DispatcherConfig(**fields))
    port = int(server.target.rpartition(":")[2])
    print(json.dumps({"port": port}), flush=True)

    def ask_when_stopped() -> None:
        server.join()
        stop.ask()

    waiting = threading.Thread(target=ask_when_stopped)
    waiting.start()
    stop.wait()
    server.stop()
    waiting.join()
    if server.failure is not None:
        logger.error("%s", server.failure)
    return int(server.failure is not None)


def _run_worker(fields: dict[str, Any], stop: StopRequest) -> int:
    config = WorkerConfig(**fields)
    supervisor = Supervisor(config, 1)
    supervisor.start()
    print("{}", flush=True)
    stop.wait()
    supervisor.stop(config.shutdown_quiet_period_ms / 1000 + GRACE)
    supervisor.join()
    return 0


def main() -> int:
    """Serve until SIGTERM or the end of standard input."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    kind, fields = sys.argv[1], json.loads(sys.argv[2])
    with StopRequest() as stop:

        def ask_at_end_of_input() -> None:
            sys.stdin.read()
            stop.ask()

        threading.Thread(target=ask_at_end_of_input, daemon=True).start()
        return (_run_dispatcher if kind == "dispatcher" else _run_worker)(fields, stop)


if __name__ == "__main__":
    sys.exit(main())
