"""In-memory counterpart of TCP, for tests: encodes messages, and can break connections."""

import itertools
from typing import Any

from stoker.elements.codec.layout import empty_body
from stoker.wire.addresses import format_address
from stoker.wire.frames import PREFIX, Message, decode, encode, parse_prefix
from stoker.wire.transports.queues import QueueConnection, QueueTransport
from stoker.wire.transports.tcp import MAX_BODY_BYTES


class MemoryConnection(QueueConnection):
    """Connection that encodes each message when sending and decodes each when receiving."""

    def pack(self, message: Message) -> Any:
        first, *buffers = encode(
            message, None if self.compressor is None else self.compressor.compress
        )
        _, size = parse_prefix(first, MAX_BODY_BYTES)
        # One body of contiguous, aligned memory, as a socket's receiver has.
        body = empty_body(size)
        position = 0
        for buffer in buffers:
            size = memoryview(buffer).nbytes
            body[position : position + size] = buffer
            position += size
        return bytes(first)[PREFIX.size :], body

    def unpack(self, item: Any) -> Message:
        header, body = item
        return decode(header, body, self.types)


class MemoryTransport(QueueTransport):
    """Listeners of one process by "host:port"; ports are counted, not opened.

    Example:
        >>> transport = MemoryTransport()
        >>> listener = transport.listen("worker", 0, lambda connection: None)
        >>> listener.address
        'worker:1'
        >>> listener.close()
    """

    name = "memory"
    connection_class = MemoryConnection

    def __init__(self) -> None:
        super().__init__()
        self._ports = itertools.count(1)

    def _address(self, host: str, port: int) -> str:
        if port:
            return format_address(host, port)
        free = (format_address(host, number) for number in self._ports)
        return next(address for address in free if address not in self._listeners)

    def break_connections(self) -> None:
        """Break all connections, losing the messages in flight; listeners stay."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            for connection in listener.accepted():
                connection.sever()


MEMORY = MemoryTransport()
