"""Connected pairs for tests, and waiting without sleeping blindly."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.wire.transports import Connection, Listener, Transport


@dataclass
class Pair:
    """A client's end, a worker's end, and where they met."""

    near: Connection
    far: Connection
    listener: Listener

    def flush_far(self) -> None:
        """Send the rest of the message that `far.send_now` began."""
        while not self.far.flush():
            self.far.wait(None, writable=True)

    @property
    def both(self) -> tuple[Connection, Connection]:
        return self.near, self.far


@contextlib.contextmanager
def connected(transport: Transport, host: str = "localhost") -> Iterator[Pair]:
    """A pair over `transport`; everything is closed afterwards."""
    accepted: queue.Queue[Connection] = queue.Queue()
    listener = transport.listen(host, 0, accepted.put)
    near = transport.connect(listener.address, 5)
    try:
        yield Pair(near, accepted.get(timeout=5), listener)
    finally:
        near.close()
        listener.close()


def meets(condition: Callable[[], bool], deadline: float = 5.0) -> bool:
    """Whether `condition` comes true before the deadline; asked again and again."""
    tick = threading.Event()
    for _ in range(int(deadline / 0.005)):
        if condition():
            return True
        tick.wait(0.005)
    return condition()


def shared_mappings() -> int:
    """How many segments of shared memory this process has mapped, for whatever purpose."""
    return Path("/proc/self/maps").read_text().count("memfd:stoker-segment")
