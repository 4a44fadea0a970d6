"""Listeners of a worker for trainers, and the addresses that it advertises."""

import logging
import sys

from stoker.errors import UnavailableError
from stoker.service.config import WorkerConfig
from stoker.service.process.host_addresses import host_for_peers
from stoker.service.worker.readers.data_connections import DataConnections
from stoker.wire.addresses import format_address, is_ipv6, parse_address
from stoker.wire.transports import Listener, Transport, get_transport
from stoker.wire.transports.shm import Segments, ShmTransport

logger = logging.getLogger("stoker.worker")


def shared_segments(config: WorkerConfig) -> Segments | None:
    """Return the memory that a worker shares with trainers of its host; ``None`` if none."""
    if not config.shared_memory_bytes or config.data_transfer_protocol is not None:
        return None
    if sys.platform != "linux":  # memfd, SO_PEERCRED and abstract Unix sockets are Linux's
        return None
    return Segments(config.shared_memory_bytes)


class WorkerListeners:
    """The listeners of a worker, open until closed.

    Args:
        config: protocols and addresses.
        dispatcher_address: "host:port"; the worker advertises the address by which it reaches it.
        connections: serve the accepted connections.
        segments: the worker's shared memory, if it has any.

    Attributes:
        address: the address by which others identify the worker.
        data_transfer_addresses: data transfer protocol → address to connect to.

    Raises:
        UnavailableError: if `config.port` cannot be bound, or no route leads to the dispatcher;
            nothing is left open.
        InvalidArgumentError: if only this machine would reach the worker, and the dispatcher is
            another one.
    """

    def __init__(
        self,
        config: WorkerConfig,
        dispatcher_address: str,
        connections: DataConnections,
        segments: Segments | None,
    ) -> None:
        self._config = config
        self._dispatcher_address = dispatcher_address
        self._connections = connections
        self._listeners: list[Listener] = []
        self.data_transfer_addresses: dict[str, str] = {}
        try:
            self.address = self._open_all(segments)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop to accept connections and close the accepted ones. Idempotent."""
        for listener in self._listeners:
            listener.close()

    def _open_all(self, segments: Segments | None) -> str:
        config = self._config
        main = config.data_transfer_protocol or "tcp"
        bound = self._listen(get_transport(main), config.host, config.port)
        port = int(bound.rpartition(":")[2])
        elements = config.data_transfer_address or config.worker_address
        self.data_transfer_addresses[main] = self._advertised(elements, port)
        # Trainers in this process are passed the elements themselves.
        self.data_transfer_addresses["local"] = self._listen(get_transport("local"), "", 0)
        if segments is not None:
            try:
                self.data_transfer_addresses["shm"] = self._listen(ShmTransport(segments), "", 0)
            except UnavailableError as error:
                logger.warning("elements are not served by shared memory: %s", error)
        address = self._advertised(config.worker_address, port)
        if self.data_transfer_addresses[main] != address:
            read_at = self.data_transfer_addresses[main]
            logger.info("trainers read elements at %s", read_at, extra={"worker": address})
        return address

    def _listen(self, transport: Transport, host: str, port: int) -> str:
        timeout = self._config.peer_timeout_ms / 1000
        serve, poller = self._connections.accept, self._connections.poller
        listener = transport.listen(host, port, serve, timeout, poller)
        self._listeners.append(listener)
        return listener.address

    def _advertised(self, configured: str | None, port: int) -> str:
        """Return the address for others: as configured, or that of the route to the dispatcher."""
        if configured:
            return _with_port(configured, port)
        dispatcher = parse_address(self._dispatcher_address)
        return format_address(host_for_peers(self._config.host, dispatcher), port)


def _with_port(configured: str, port: int) -> str:
    """Return a configured address, with the port of the listener if it names none."""
    address = configured.replace("%port%", str(port)).replace("%dts_port%", str(port))
    host = address.removeprefix("[").removesuffix("]")
    return format_address(host, port) if ":" not in host or is_ipv6(host) else address
