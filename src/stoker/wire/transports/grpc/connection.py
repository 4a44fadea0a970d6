"""Messages in a gRPC call; gRPC's own messages are pieces of their stream."""

import socket
import threading
import time
from collections import deque

from stoker.elements.codec.elements import TypeResolver
from stoker.errors import WireError
from stoker.wire.buffers import BufferPool
from stoker.wire.frames import (
    MAX_HEADER_BYTES,
    PREFIX,
    Message,
    decode,
    parse_prefix,
)
from stoker.wire.packing import send_packed
from stoker.wire.transports import Connection
from stoker.wire.transports.grpc.call import Call
from stoker.wire.transports.tcp import POOLED_BYTES

_MAX_AHEAD_BYTES = 1 << 20


class GrpcConnection(Connection):
    """Messages both ways in one call, which `open_call` or `accept_call` begins.

    HTTP/2 lets a side send only what the other has given it a window for, and says so among the
    messages: who receives reads it, and where nobody does a sender reads ahead, up to about a
    mebibyte of messages.

    Args:
        sock: connected; becomes the connection's.
        peer: for error messages.
        max_body_bytes: longer bodies are refused before memory is allocated for them.
        max_header_bytes: the same for headers.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        max_body_bytes: int,
        max_header_bytes: int = MAX_HEADER_BYTES,
    ) -> None:
        self.peer = peer
        self.types = TypeResolver()
        self._max_body_bytes = max_body_bytes
        self._max_header_bytes = max_header_bytes
        self._call = Call(sock, peer, self._read_ahead)
        self.open_call = self._call.open
        self.accept_call = self._call.accept
        self._changed = threading.Condition()
        self._reading = False  # whether a thread does; nobody else may touch what comes in
        self._inbox: deque[tuple[memoryview, memoryview]] = deque()
        self._inbox_bytes = 0
        self._bodies = BufferPool(POOLED_BYTES)
        self._prefix = memoryview(bytearray(PREFIX.size))
        self._header: memoryview | None = None
        self._body: memoryview | None = None
        self._body_size = 0
        self._have = 0

    @property
    def closed(self) -> bool:
        return self._call.closed

    def close(self) -> None:
        self._call.close()

    def send(self, message: Message) -> None:
        send_packed(message, self.packer, self._call.send)

    def receive(self, timeout: float | None = None) -> Message:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._call.using():
            try:
                header, body = self._next_parts(deadline)
                return decode(
                    header,
                    body,
                    self.types,
                    max_body_bytes=self._max_body_bytes,
                    allocate=self._bodies.take,
                )
            except WireError as error:
                self.close()
                raise WireError(f"{self.peer} sent what is not a message: {error}") from error

    def _next_parts(self, deadline: float | None) -> tuple[memoryview, memoryview]:
        try:
            if self._begin_reading(deadline):
                try:
                    while not self._inbox:
                        self._read_on(deadline)
                finally:
                    self._end_reading()
            header, body = self._inbox.popleft()
            self._inbox_bytes -= body.nbytes
            return header, body
        finally:
            self._call.nobody_reads()

    def _begin_reading(self, deadline: float | None) -> bool:
        """Wait until there is a message, or nobody else reads; whether this thread now does."""
        with self._changed:
            while not self._inbox:
                if not self._reading:
                    self._reading = True
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"{self.peer} sent no whole message in time")
                self._changed.wait(left)
        return False

    def _end_reading(self) -> None:
        with self._changed:
            self._reading = False
            self._changed.notify_all()

    def _read_ahead(self) -> bool:
        """What a sender does that may send no more: as `receive`, but keeps the message."""
        with self._changed:
            if self._reading or self._inbox_bytes > _MAX_AHEAD_BYTES:
                return False
            self._reading = True
        try:
            before = len(self._inbox)
            while self._call.shut and len(self._inbox) == before:
                self._read_on(None)
        finally:
            self._end_reading()
        return True

    def _read_on(self, deadline: float | None) -> None:
        """Read something; a message that is whole goes into the inbox."""
        target = self._prefix if self._header is None else self._body or self._header
        if self._have < len(target):
            self._have += self._call.read_into(target[self._have :], deadline)
        if self._have < len(target):
            return
        self._have = 0
        if self._header is None:
            size, self._body_size = parse_prefix(self._prefix, self._max_body_bytes)
            if size > self._max_header_bytes:
                raise WireError(
                    f"a header of {size} bytes, more than the {self._max_header_bytes} allowed"
                )
            self._header = memoryview(bytearray(size))
        elif self._body is None and self._body_size:
            self._body = self._bodies.take(self._body_size)
        else:
            body = self._body or memoryview(b"")
            self._inbox.append((self._header, body))
            self._inbox_bytes += body.nbytes
            self._header = self._body = None
