"""Connections within one process: one queue per direction."""

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from stoker.errors import UnavailableError
from stoker.wire.frames import Message
from stoker.wire.transports import (
    Connection,
    Listener,
    ListenOptions,
    Transport,
)
from stoker.wire.transports.poller import Poller, Ready


class Mailbox:
    """Unbounded queue of the items sent in one direction and not yet received."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._items: deque[Any] = deque()
        self._ended = ""
        self._when_filled: Callable[[], None] = _nothing

    def put(self, item: Any) -> None:
        """Append `item`. Raises UnavailableError after `end`."""
        with self._condition:
            if self._ended:
                raise UnavailableError(self._ended)
            self._items.append(item)
            notify = self._take_notified()
        notify()  # without the lock: the function may call this mailbox

    def take(self) -> Any:
        """Return the next item, or ``None``; raises UnavailableError if ended and empty."""
        with self._condition:
            if self._items:
                return self._items.popleft()
            if self._ended:
                raise UnavailableError(self._ended)
            return None

    def wait(self, deadline: float | None) -> None:
        """Wait until `take` does something; raises TimeoutError."""
        timeout = None if deadline is None else deadline - time.monotonic()
        with self._condition:
            if not self._condition.wait_for(lambda: self._items or self._ended, timeout):
                raise TimeoutError("no whole message in time")

    def notify(self, function: Callable[[], None]) -> None:
        """Call `function` once when `wait` would return; replaces an earlier function."""
        with self._condition:
            ready = self._items or self._ended
            self._when_filled = _nothing if ready else function
        if ready:
            function()

    def end(self, reason: str, *, drop: bool) -> None:
        """Refuse new items and `drop` the queued ones; only a dropping call replaces the reason."""
        with self._condition:
            if drop:
                self._items.clear()
            if drop or not self._ended:
                self._ended = reason
            notify = self._take_notified()
        notify()

    def _take_notified(self) -> Callable[[], None]:
        """Wake the waiting threads; return the function to call without the lock."""
        notify, self._when_filled = self._when_filled, _nothing
        self._condition.notify_all()
        return notify


def _nothing() -> None:
    pass


class QueueConnection(Connection):
    """One end of a pair of mailboxes."""

    def __init__(self, peer: str, inbox: Mailbox, outbox: Mailbox) -> None:
        super().__init__(peer)
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

    def send_now(self, message: Message) -> bool:
        item = self.pack(message)
        if self._closed:
            raise self._closed_here()
        self._outbox.put(item)
        return True

    def flush(self) -> bool:
        return True

    def receive_now(self) -> Message | None:
        item = self._inbox.take()
        return None if item is None else self.unpack(item)

    def watch(self, poller: Poller, ready: Ready, *, writable: bool) -> None:
        call = partial(poller.call, ready)
        if writable:  # a mailbox has room for any number of messages
            call()
        else:
            self._inbox.notify(call)

    def wait(self, deadline: float | None, *, writable: bool) -> None:
        if not writable:
            self._inbox.wait(deadline)

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

    def __init__(self, transport: "QueueTransport", address: str, options: ListenOptions) -> None:
        super().__init__(address, options)
        self._transport = transport

    def accepted(self) -> list["QueueConnection"]:
        """Return the workers' ends of the connections."""
        with self._lock:
            return [each for each in self._accepted if isinstance(each, QueueConnection)]

    def close(self) -> None:
        self._transport.forget(self)
        super().close()


class QueueTransport(Transport):
    """Table of listeners; `connection_class` defines how messages are passed."""

    connection_class: type[QueueConnection] = QueueConnection

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, QueueListener] = {}

    def _address(self, host: str, port: int) -> str:
        """Return a free address; the caller holds the lock."""
        raise NotImplementedError

    def _listen(self, host: str, port: int, options: ListenOptions) -> Listener:
        with self._lock:
            address = self._address(host, port)
            if address in self._listeners:
                raise UnavailableError(
                    f"cannot listen on {address}: it is taken; choose another port, or 0 for any"
                )
            listener = QueueListener(self, address, options)
            self._listeners[address] = listener
        return listener

    def forget(self, listener: QueueListener) -> None:
        """Remove `listener`: new clients cannot connect any more."""
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
        listener.serve(far)
        return near
