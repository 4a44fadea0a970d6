"""Places: the entries of `DispatcherConfig.worker_addresses`, each for a single worker.

The place of a worker is its shard under static sharding.
"""

from collections.abc import Callable, Container, Sequence
from itertools import count

from stoker.errors import AlreadyExistsError, FailedPreconditionError
from stoker.service.dispatcher.entities.registered import WorkerInfo

ANY_PORT = "%"
"""In place of a port: "%port%" and names such as "%grpc%" stand for a port chosen by the system."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


# A static shard belongs to a place in `worker_addresses`, not to an address for ever: a worker that
# restarts at another port takes the place. (docs/decisions/055)
class Places:
    """The entries, and the workers that have their places.

    Attributes:
        addresses: the entries; part of the configuration, not of the recorded state.
        grows: there is no configuration: each worker gets the first free place, or a new one, and
            the entry is its address.
        workers: place → its worker.
    """

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.grows = False
        self.workers: dict[int, WorkerInfo] = {}

    def add(self, worker: WorkerInfo) -> None:
        """Note the place of a worker, if any."""
        if worker.place is not None:
            self.workers[worker.place] = worker

    def find(
        self,
        address: str,
        misses_heartbeats: Callable[[int], bool],
        is_connected: Callable[[int], bool],
    ) -> int | None:
        """Return the place of a new worker; ``None`` if no addresses are configured.

        The place may be that of a worker that has missed heartbeats, which leaves it.

        Args:
            address: of the worker.
            misses_heartbeats: returns whether a worker, by its id, has missed heartbeats.
            is_connected: returns whether it has a session.

        Raises:
            FailedPreconditionError: if there is no place for the worker.
            AlreadyExistsError: if there may be one soon, after a worker that has no session.
        """
        if self.grows:
            return self._grow(address)
        if not self.addresses:
            return None
        kept = [place for place, x in self.workers.items() if not misses_heartbeats(x.worker_id)]
        # A free place first, then that of a worker that seems to be dead.
        for taken in (self.workers, kept):
            place = place_of(address, self.addresses, taken)
            if place is not None:
                return place
        connected = [place for place in kept if is_connected(self.workers[place].worker_id)]
        place = place_of(address, self.addresses, connected)
        if place is not None:
            raise AlreadyExistsError(
                f"worker {self.workers[place].address} has the place of "
                f"{self.addresses[place]!r} in `worker_addresses`; it is not connected now, and "
                f"{address} may have the place if it does not come back"
            )
        raise FailedPreconditionError(
            f"Failed to assign an index for worker {address}. Configured workers list: "
            f"[{{{', '.join(self.addresses)}}}]. The worker's address is not configured, or other "
            "workers are already running at the configured host. If your worker has restarted, "
            "make sure it runs at the same address and port. The list is `worker_addresses` of "
            "the dispatcher"
        )

    def keeps(self, worker: WorkerInfo) -> bool:
        """Return False if a restarted dispatcher has another place for a worker, or none."""
        if not self.addresses or self.grows:
            return True
        if worker.place is None or worker.place >= len(self.addresses):
            return False
        return place_of(worker.address, [self.addresses[worker.place]]) is not None

    def _grow(self, address: str) -> int:
        """Return the first free place, perhaps a new one, after its entry is set to `address`."""
        place = next(place for place in count() if place not in self.workers)
        self.addresses[place : place + 1] = [address]
        return place

    def remove(self, worker: WorkerInfo) -> None:
        """Free the place of a worker that was lost."""
        if worker.place is not None:
            del self.workers[worker.place]


def place_of(address: str, configured: Sequence[str], taken: Container[int] = ()) -> int | None:
    """Return the place of a worker: the entry with its address, or the first free one of its host.

    Args:
        address: "host:port" of the worker.
        configured: the entries.
        taken: places that other workers have.

    Returns:
        ``None`` if there is none.

    Example:
        >>> configured = ["a:%port%", "a", "a:5050", "b:%grpc%"]
        >>> place_of("a:5050", configured), place_of("a:6000", configured, {0})
        (2, 1)
        >>> print(place_of("c:5050", configured))
        None
    """
    free = [place for place in range(len(configured)) if place not in taken]
    for place in free:
        if _split(address) == _split(configured[place]):
            return place
    host, _ = _split(address)
    for place in free:
        entry_host, port = _split(configured[place])
        if (not port or ANY_PORT in port) and entry_host == host:
            return place
    return None


def _split(address: str) -> tuple[str, str]:
    """Return host and port of an entry; the usual names of the loopback interface are one."""
    host, colon, port = address.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):  # no port: a name, or "::1"
        host, port = address, ""
    host = host.removeprefix("[").removesuffix("]").lower()
    return ("localhost" if host in _LOOPBACK else host), port
