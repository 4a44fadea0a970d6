"""A dispatcher in a process of its own that measures the delays of heartbeats.

``python -m tests.scale.watched_dispatcher`` prints its port. Each line on standard input is
answered with a line of JSON, a `Measurement` since the line before.
"""

import resource
import sys
import time
from typing import Any

import msgspec

from stoker.service import DispatchServer
from stoker.service import messages as m
from stoker.service.control import rpc


class Measurement(msgspec.Struct):
    """The work of a dispatcher in some seconds.

    Attributes:
        delays: from the time at which a heartbeat was due until it was decoded, in seconds.
        cpu: seconds of CPU time.
        workers: the number of workers at the end.
        memory: the largest resident size until now, in MiB.
    """

    delays: list[float]
    cpu: float
    workers: int
    memory: int

    def delay(self, share: float) -> float:
        """Return the delay that a share of the heartbeats did not exceed."""
        return sorted(self.delays)[int(share * (len(self.delays) - 1))]


class _Due(msgspec.Struct):
    at: float = 0.0


def main() -> None:
    """Serve until standard input ends."""
    delays: list[float] = []
    rpc_module: Any = rpc
    decode = rpc.decode_to_dispatcher
    decode_due = msgspec.msgpack.Decoder(_Due).decode

    def measured(data: bytes) -> Any:
        message = decode(data)
        if isinstance(message, m.Heartbeat):
            delays.append(time.monotonic() - decode_due(data).at)
        return message

    rpc_module.decode_to_dispatcher = measured
    with DispatchServer(port=0) as dispatcher:
        _answer(dispatcher.target.rpartition(":")[2])
        cpu = time.process_time()
        for _ in sys.stdin:
            found = Measurement(
                delays[:],
                time.process_time() - cpu,
                dispatcher.num_workers(),
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
            )
            delays.clear()
            cpu = time.process_time()
            _answer(msgspec.json.encode(found).decode())


def _answer(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
