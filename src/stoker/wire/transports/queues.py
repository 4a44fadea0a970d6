"""Connections within one process: one queue per direction."""

import threading
import time
from collections import deque
from typing import Any

from stoker.elements.codec.elements import TypeResolver
from stoker.errors import UnavailableError
from stoker.wire.frames import Message
from stoker.wire.transports import (
    PEER_TIMEOUT,
    Connection,
    Listener,
    OnConnection,
    Transport,
)
from stoker.wire.transports.serving import Serving


class Mailbox:
    """Queue of the items sent in one direction and not yet received.

    Args:
        max_bytes: `put` blocks while the items have at least `max_bytes` bytes; ``None`` for no
            bound.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._condition = threading.Condition()
        self._items: deque[Any] = deque()
        self._max_bytes = max_bytes
        self._bytes = 0
        self._ended = ""

    def put(self, item: Any) -> None:
        """Append `item`; raises UnavailableError after `end`."""
        with self._condition:
            if self._max_bytes is not None:
                while self._bytes >= self._max_bytes and not self._ended:
                    self._condition.wait()
                self._bytes += len(item)
            if self._ended:
                raise UnavailableError(self._ended)
            self._items.append(item)
            self._condition.notify_all()

    def get(self, peer: str, timeout: float | None) -> Any:
        """Return the next item; raises TimeoutError, or UnavailableError if ended and empty."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            while not self._items:
                if self._ended:
                    raise UnavailableError(self._ended)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"{peer} sent no whole message in time")
                self._condition.wait(left)
            item = self._items.popleft()
            if self._max_bytes is not None:
                self._bytes -= len(item)
                self._condition.notify_all()
            return item

    def end(self, reason: str, *, drop: bool) -> None:
        """Refuse new items and `drop` the queued ones; only a dropping call replaces the reason."""
        with self._condition:
            if drop:
                self._items.clear()
            if drop or not self._ended:
                self._ended = reason
            self._condition.notify_all()


class QueueConnection(Connection):
    """One end of a pair of mailboxes."""

    def __init__(self, peer: str, inbox: Mailbox, outbox: Mailbox) -> None:
        self.peer = peer
        self.types = TypeResolver()
        self._inbox = inbox
        self._outbox = outbox
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def pack(self, message: Message) -> Any:
        """Return the item to put into the mailbox for `message`."""
        return message

    def unpack(self, item: Any) -> Message:
        """Return the message of an `item` that the peer's `pack` returned."""
        message: Message = item
        return message

    def send(self, message: Message) -> None:
        item = self.pack(message)
        if self._closed:
            raise self._closed_here()
        self._outbox.put(item)

    def send_now(self, message: Message) -> bool:
        self.send(message)
        return True

    def receive(self, timeout: float | None = None) -> Message:
        return self.unpack(self._inbox.get(self.peer, timeout))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._inbox.end(str(self._closed_here()), drop=True)
        # Messages sent before are still delivered, as over a socket.
        self._outbox.end("the peer disconnected: it closed the connection", drop=False)

    def _closed_here(self) -> UnavailableError:
        return UnavailableError(f"the connection to {self.peer} was closed on this side")

    def sever(self) -> None:
        """End both directions like a network failure: messages in flight are lost."""
        for box in (self._inbox, self._outbox):
            box.end(f"{self.peer} disconnected: the connection broke", drop=True)


class QueueListener(Listener):
    """Entry in the transport's table of listeners."""

    def __init__(self, transport: "QueueTransport", address: str, serving: Serving) -> None:
        self.address = address
        self.serving = serving
        self._transport = transport

    def close(self) -> None:
        self._transport.forget(self)
        self.serving.close()


class QueueTransport(Transport):
    """Table of listeners; `connection_class` defines how messages are passed."""

    connection_class: type[QueueConnection] = QueueConnection

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, QueueListener] = {}

    def _address(self, host: str, port: int) -> str:
        """Return a free address; the caller holds the lock."""
        raise NotImplementedError

    def listen(
        self,
        host: str,
        port: int,
        on_connection: OnConnection,
        peer_timeout: float = PEER_TIMEOUT,
    ) -> Listener:
        with self._lock:
            address = self._address(host, port)
            if address in self._listeners:
                raise UnavailableError(
                    f"cannot listen on {address}: it is taken; choose another port, or 0 for any"
                )
            listener = QueueListener(self, address, Serving(on_connection))
            self._listeners[address] = listener
        return listener

    def forget(self, listener: QueueListener) -> None:
        """Remove `listener`: new clients cannot connect to it."""
        with self._lock:
            if self._listeners.get(listener.address) is listener:
                del self._listeners[listener.address]

    def connect(self, address: str, timeout: float) -> Connection:
        with self._lock:
            listener = self._listeners.get(address)
        if listener is None:
            raise UnavailableError(f"cannot connect to {address}: no server listens there")
        up, down = Mailbox(), Mailbox()
        near = self.connection_class(address, down, up)
        far = self.connection_class(f"a client of {address}", up, down)
        self.connected(near, far)
        listener.serving.start(far)
        return near

    def connected(self, near: QueueConnection, far: QueueConnection) -> None:
        """Observe a new pair before it is used; a hook for subclasses."""
