"""What a worker listens on for trainers, and what it tells others to reach it by."""

import logging
import socket
import sys

from stoker.errors import UnavailableError
from stoker.service.config import WorkerConfig, is_loopback, join_address, split_address
from stoker.wire.transports import Listener, OnConnection, Transport, get_transport
from stoker.wire.transports.shm import Segments, ShmTransport

logger = logging.getLogger("stoker.worker")


def shared_segments(config: WorkerConfig) -> Segments | None:
    """The memory a worker shares with trainers of its host; ``None`` where it shares none."""
    if not config.shared_memory_bytes or config.data_transfer_protocol is not None:
        return None
    if sys.platform != "linux":  # memfd, SO_PEERCRED and abstract Unix sockets are Linux's
        return None
    return Segments(config.shared_memory_bytes)


class Listening:
    """The listeners of a worker, open from here on until closed.

    Args:
        config: which, and where.
        dispatcher_address: "host:port"; other machines are thought to see this one as it does.
        on_connection: called for each connection, on a thread of its own.
        segments: the worker's shared memory, if it has any.

    Attributes:
        address: of the worker as others know it.
        data_transfer_addresses: for each data transport its name and the address to connect to.

    Raises:
        UnavailableError: `config.port` cannot be listened on; nothing is open.
    """

    def __init__(
        self,
        config: WorkerConfig,
        dispatcher_address: str,
        on_connection: OnConnection,
        segments: Segments | None,
    ) -> None:
        self._config = config
        self._dispatcher_address = dispatcher_address
        self._on_connection = on_connection
        self._listeners: list[Listener] = []
        self.data_transfer_addresses: dict[str, str] = {}
        try:
            self.address = self._open_all(segments)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Accepts no more, and closes what was accepted. Idempotent."""
        for listener in self._listeners:
            listener.close()

    def _open_all(self, segments: Segments | None) -> str:
        config = self._config
        main = config.data_transfer_protocol or "tcp"
        port = self._open_port(main, config.port)
        elements = config.data_transfer_address or config.worker_address
        self.data_transfer_addresses[main] = self._advertised(elements, port)
        self.data_transfer_addresses["local"] = self._listen(get_transport("local"), "", 0)
        if segments is not None:
            try:
                self.data_transfer_addresses["shm"] = self._listen(ShmTransport(segments), "", 0)
            except UnavailableError as error:
                logger.warning("elements are not served by shared memory: %s", error)
        return self._advertised(config.worker_address, port)

    def _open_port(self, name: str, port: int) -> int:
        address = self._listen(get_transport(name), self._config.host, port)
        return int(address.rpartition(":")[2])

    def _listen(self, transport: Transport, host: str, port: int) -> str:
        listener = transport.listen(host, port, self._on_connection)
        self._listeners.append(listener)
        return listener.address

    def _advertised(self, configured: str | None, port: int) -> str:
        """The address others use: as configured, or found by asking the route to the dispatcher."""
        if configured:
            configured = configured.replace("%port%", str(port)).replace("%dts_port%", str(port))
            return configured if ":" in configured else join_address(configured, port)
        host = self._config.host
        if is_loopback(host):
            return join_address("localhost", port)
        if host not in ("0.0.0.0", "::", ""):
            return join_address(host, port)
        return join_address(_route_to(split_address(self._dispatcher_address)), port)


def _route_to(address: tuple[str, int]) -> str:
    """The address of this machine on the way to another; nothing is sent."""
    for family, kind, protocol, _, target in socket.getaddrinfo(*address, type=socket.SOCK_DGRAM):
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(target)
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return socket.gethostname()
