"""A dispatcher or worker of tf.data service: ``tensorflow_server.py dispatcher|worker FIELDS``.

FIELDS are those of its configuration, as JSON, and for a worker `directory`, in which it writes its
process id to the file `worker`. It prints one JSON line when it serves. SIGTERM ends it at once, as
it does a script that calls `join`, and so does the end of its standard input.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until standard input ends."""
    import tensorflow as tf

    service = tf.data.experimental.service
    kind, fields = sys.argv[1], json.loads(sys.argv[2])
    server: Any
    if kind == "dispatcher":
        server = service.DispatchServer(service.DispatcherConfig(**fields))
        port = int(server.target.rpartition(":")[2])
        print(json.dumps({"port": port}), flush=True)
    else:
        os.chdir(fields.pop("directory"))
        Path("worker").write_text(str(os.getpid()))
        server = service.WorkerServer(service.WorkerConfig(**fields))
        print("{}", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
